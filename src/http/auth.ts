/** Who a request acts for: a bearer key (RFC 6750), or `?key=` where a browser cannot send one. */

import type { Context, MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import type { KeyRing } from "../tenancy/key-ring.ts";
import type { AppEnv } from "./env.ts";

/**
 * Lets only requests with a known key pass.
 *
 * @throws CprgError `unauthenticated`
 */
export function requireKey(keys: KeyRing): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const key = presentedKey(c);
    const principal = key === null ? null : keys.authenticate(key);
    if (principal === null) {
      throw new CprgError(
        "unauthenticated",
        key === null ? "Cannot answer: no key was sent" : "Cannot answer: the key is unknown",
        { hint: "Send the header Authorization: Bearer KEY" },
      );
    }
    c.set("principal", principal);
    await next();
  };
}

/** Whether a request asks for a WebSocket (RFC 6455 section 4.1). */
export function isUpgrade(c: Context<AppEnv>): boolean {
  return c.req.method === "GET" && c.req.header("upgrade")?.toLowerCase() === "websocket";
}

const STREAM_PATH = /^\/v1\/jobs\/[^/]+\/stream$/;

/** A key in a URL ends up in histories and logs: it counts only where there is no other way. */
function presentedKey(c: Context<AppEnv>): string | null {
  const header = c.req.header("authorization");
  if (header !== undefined) return /^Bearer +(\S+) *$/i.exec(header)?.[1] ?? "";
  return isUpgrade(c) && STREAM_PATH.test(c.req.path) ? (c.req.query("key") ?? null) : null;
}
