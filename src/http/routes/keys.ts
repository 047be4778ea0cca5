/** `/v1/keys`, for administrators: make, list, look, rotate, revoke. A key is shown when it is made. */

import { Hono } from "hono";
import { timestamp } from "../../core/clock.ts";
import { invalid } from "../../core/errors.ts";
import { isId } from "../../core/ids.ts";
import type { StoredKey } from "../../core/key.ts";
import type { Limits } from "../../core/limits.ts";
import type { KeyRegistry, MadeKey } from "../../tenancy/key-registry.ts";
import { type BodyRules, readJson } from "../body.ts";
import type { AppEnv } from "../env.ts";
import { keyRequest, rotateRequest } from "../key-schemas.ts";
import { readNumber, readQuery } from "../query.ts";

/** Keys on a page of the list. */
const KEYS_LIMIT_DEFAULT = 100;
const KEYS_LIMIT_MAX = 500;

/** What the routes work with. */
export interface KeyRoutesOptions {
  readonly registry: KeyRegistry;
  /** The server's ceilings. */
  readonly ceilings: Limits;
  readonly bodies: BodyRules;
}

/** The routes beneath `/v1/keys`. */
export function keyRoutes({ registry, ceilings, bodies }: KeyRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const made = await registry.create(keyRequest(await readJson(c, bodies), ceilings));
    c.header("Location", `/v1/keys/${made.stored.id}`);
    return c.json(madeView(made), 201);
  });

  app.get("/", (c) => {
    const query = readQuery(c, ["tenant", "limit", "cursor"]);
    const { tenant, cursor } = query;
    if (cursor !== undefined && !isId(cursor)) {
      throw invalid("cursor", "Cannot use cursor: no list gave it");
    }
    const range = { min: 1, max: KEYS_LIMIT_MAX, default: KEYS_LIMIT_DEFAULT };
    const limit = readNumber(query, "limit", range);
    const found = registry
      .list()
      .filter((key) => tenant === undefined || key.tenant === tenant)
      .filter((key) => cursor === undefined || key.id > cursor)
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    const page = found.slice(0, limit);
    const hasMore = found.length > page.length;
    return c.json({ keys: page.map(keyView), next_cursor: hasMore ? page.at(-1)?.id : null });
  });

  app.get("/:id", (c) => {
    readQuery(c, []);
    return c.json(keyView(registry.get(c.req.param("id"))));
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    return c.json(keyView(await registry.revoke(c.req.param("id"))));
  });

  app.post("/:id/rotate", async (c) => {
    readQuery(c, []);
    const overlapSeconds = rotateRequest(await readJson(c, bodies));
    const made = await registry.rotate(c.req.param("id"), overlapSeconds);
    c.header("Location", `/v1/keys/${made.stored.id}`);
    return c.json(madeView(made), 201);
  });
  return app;
}

/** A key as administrators see it. */
export function keyView(key: StoredKey) {
  return {
    key_id: key.id,
    tenant: key.tenant,
    role: key.role,
    name: key.name,
    prefix: key.prefix,
    ceilings: key.ceilings,
    rate_per_min: key.ratePerMin,
    created_at: timestamp(key.createdAt),
    last_used_at: timeOrNull(key.lastUsedAt),
    expires_at: timeOrNull(key.expiresAt),
    revoked_at: timeOrNull(key.revokedAt),
  };
}

function madeView({ key, stored }: MadeKey) {
  return { ...keyView(stored), key };
}

function timeOrNull(at: number | null): string | null {
  return at === null ? null : timestamp(at);
}
