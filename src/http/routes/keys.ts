/** `/v1/keys`, for administrators: make, list, look, rotate, revoke. A key is shown when it is made. */

import { Hono } from "hono";
import { invalid } from "../../core/errors.ts";
import { isId } from "../../core/ids.ts";
import type { KeyRegistry } from "../../tenancy/key-registry.ts";
import { type BodyRules, readJson } from "../body.ts";
import { listCursor, readCursor } from "../cursors.ts";
import type { AppEnv } from "../env.ts";
import { keyRequest, rotateRequest } from "../key-schemas.ts";
import { keyView, madeView } from "../key-views.ts";
import { keyListParameters, readParameters } from "../parameters.ts";
import { readQuery } from "../query.ts";

/** What the routes work with. */
export interface KeyRoutesOptions {
  readonly registry: KeyRegistry;
  readonly bodies: BodyRules;
}

/** The routes beneath `/v1/keys`. */
export function keyRoutes({ registry, bodies }: KeyRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const made = await registry.create(keyRequest(await readJson(c, bodies)));
    c.header("Location", `/v1/keys/${made.stored.id}`);
    return c.json(madeView(made), 201);
  });

  app.get("/", (c) => {
    const { tenant, limit, ...asked } = readParameters(c, keyListParameters);
    const { cursor } = readCursor("keys", asked.cursor);
    if (cursor !== undefined && !isId(cursor)) {
      throw invalid("cursor", "Cannot use cursor: no list gave it");
    }
    const found = registry
      .list()
      .filter((key) => tenant === undefined || key.tenant === tenant)
      .filter((key) => cursor === undefined || key.id > cursor)
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    const page = found.slice(0, limit);
    const hasMore = found.length > page.length;
    return c.json({
      keys: page.map(keyView),
      next_cursor: listCursor("keys", hasMore ? page.at(-1)?.id : null),
    });
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
