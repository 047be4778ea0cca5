/** Request ids, and one structured line for each request. Queries are not logged: they may hold keys. */

import type { MiddlewareHandler } from "hono";
import type { Clock } from "../core/clock.ts";
import { newId } from "../core/ids.ts";
import type { Log } from "../core/log.ts";
import type { AppEnv } from "./env.ts";

/** Characters of a path that are logged. */
const LOGGED_PATH_CHARS = 200;

/** Gives each request its id, in the header `X-Request-Id` too, and logs it when it was answered. */
export function requestLog(log: Log, clock: Clock): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const startedMs = clock.monotonicMs();
    const requestId = newId();
    c.set("requestId", requestId);
    c.header("X-Request-Id", requestId);
    await next();
    c.header("X-Request-Id", requestId);
    log.info("request", {
      request_id: requestId,
      method: c.req.method,
      path: c.req.path.slice(0, LOGGED_PATH_CHARS),
      status: c.res.status,
      duration_ms: Math.round((clock.monotonicMs() - startedMs) * 1000) / 1000,
      tenant: c.get("principal")?.tenant ?? null,
    });
  };
}
