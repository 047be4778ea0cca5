/**
 * Request ids, and one structured line for each request. Queries are not logged, because they may
 * hold keys, and paths are without any.
 */

import type { MiddlewareHandler } from "hono";
import type { Clock } from "../core/clock.ts";
import { newId } from "../core/ids.ts";
import type { Log } from "../core/log.ts";
import { redactKeys } from "../core/redact-keys.ts";
import type { AppEnv } from "./env.ts";
import { presentedSecrets } from "./presented.ts";

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
      path: redactKeys(c.req.path, presentedSecrets(c)).slice(0, LOGGED_PATH_CHARS),
      status: c.res.status,
      duration_ms: Math.round((clock.monotonicMs() - startedMs) * 1000) / 1000,
      tenant: c.get("principal")?.tenant ?? null,
    });
  };
}
