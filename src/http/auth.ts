/** Who a request acts for: a bearer key (RFC 6750), or `?key=` where a browser cannot send one. */

import type { MiddlewareHandler } from "hono";
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
    const key = presentedKey(c.req.raw);
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

/** Whose a request is, before it is let in: a tenant's, or, with no key that is known, a stranger's. */
export function partyOf(keys: KeyRing, request: Request): string {
  const key = presentedKey(request);
  return (key === null ? null : keys.authenticate(key)?.tenant) ?? "";
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
export function isUpgrade({ method, headers }: Request): boolean {
  return method === "GET" && headers.get("upgrade")?.toLowerCase() === "websocket";
}

const STREAM_PATH = /^\/v1\/(?:jobs|execs)\/[^/]+\/stream$/;

/** A key in a URL ends up in histories and logs: it counts only where there is no other way. */
function presentedKey(request: Request): string | null {
  const header = request.headers.get("authorization");
  if (header !== null) return /^Bearer +(\S+) *$/i.exec(header)?.[1] ?? "";
  if (!isUpgrade(request)) return null;
  const { pathname, searchParams } = new URL(request.url);
  return STREAM_PATH.test(pathname) ? searchParams.get("key") : null;
}
