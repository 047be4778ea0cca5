/** Who a request acts for: a bearer key (RFC 6750), or `?key=` where a browser cannot send one. */

import type { Context, MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import type { KeyRing } from "../tenancy/key-ring.ts";
import type { Tenancy } from "../tenancy/tenancy.ts";
import type { AppEnv } from "./env.ts";

/**
 * Lets only requests with a known key pass, and of each key so many a minute.
 *
 * @throws CprgError `unauthenticated`; `resource_exhausted` with reason RATE_LIMITED
 */
export function requireKey(keys: KeyRing, tenancy: Tenancy): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const key = presentedKey(c);
    const principal = key === null ? null : keys.authenticate(key);
    if (principal === null) {
      tenancy.audit.refused();
      throw new CprgError(
        "unauthenticated",
        key === null ? "Cannot answer: no key was sent" : "Cannot answer: the key is unknown",
        { hint: "Send the header Authorization: Bearer KEY" },
      );
    }
    c.set("principal", principal);
    tenancy.registry.noteUse(principal.keyId);
    tenancy.rates.take(principal.keyId, principal.ratePerMin);
    await next();
  };
}

/** Paths that only administrators use, with what is beneath them. */
export const ADMIN_PATHS: readonly string[] = [
  "/v1/keys",
  "/v1/audit",
  "/v1/metrics",
  "/v1/worker-tokens",
];

/** Whether a path is among {@link ADMIN_PATHS} or beneath one, or of one worker. */
export function isAdminPath(path: string): boolean {
  if (path.startsWith("/v1/workers/")) return true;
  return ADMIN_PATHS.some((admin) => path === admin || path.startsWith(`${admin}/`));
}

/** Whether a path is of keys: what may revoke the very key that asks is answered all the same. */
export function isKeyPath(path: string): boolean {
  return path === "/v1/keys" || path.startsWith("/v1/keys/");
}

/**
 * Keeps tenants from {@link ADMIN_PATHS}, whether or not there is something.
 *
 * @throws CprgError `permission_denied`
 */
export const requireAdmin: MiddlewareHandler<AppEnv> = async (c, next) => {
  if (isAdminPath(c.req.path) && c.get("principal").role !== "admin") {
    throw new CprgError("permission_denied", "Cannot answer: the key is no administrator's", {
      reason: "ADMIN_REQUIRED",
      hint: "Use a key of CPRG_ADMIN_KEYS, or one made with --role admin",
    });
  }
  await next();
};

/** Whether a request asks for a WebSocket (RFC 6455 section 4.1). */
export function isUpgrade(c: Context<AppEnv>): boolean {
  return c.req.method === "GET" && c.req.header("upgrade")?.toLowerCase() === "websocket";
}

const STREAM_PATH = /^\/v1\/(?:jobs|execs)\/[^/]+\/stream$/;

/** A key in a URL ends up in histories and logs: it counts only where there is no other way. */
function presentedKey(c: Context<AppEnv>): string | null {
  const header = c.req.header("authorization");
  if (header !== undefined) return /^Bearer +(\S+) *$/i.exec(header)?.[1] ?? "";
  return isUpgrade(c) && STREAM_PATH.test(c.req.path) ? (c.req.query("key") ?? null) : null;
}
