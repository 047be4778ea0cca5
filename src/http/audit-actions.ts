/**
 * Records what requests do: one table of routes, so that no route has to think of it. Ids come from
 * the answer's `Location` or from the path, and only where they are ids: anything else that a
 * client puts there may be a secret.
 */

import type { Context, MiddlewareHandler } from "hono";
import type { AuditAction } from "../core/audit.ts";
import { isId } from "../core/ids.ts";
import type { AuditTrail } from "../tenancy/audit-trail.ts";
import type { AppEnv } from "./env.ts";

const ACTIONS: readonly {
  readonly method: string;
  readonly path: RegExp;
  readonly action: AuditAction;
}[] = [
  { method: "POST", path: /^\/v1\/jobs(?:\/batch)?$/, action: "job.submit" },
  { method: "DELETE", path: /^\/v1\/jobs\/([^/]+)$/, action: "job.cancel" },
  { method: "POST", path: /^\/v1\/sandboxes$/, action: "sandbox.create" },
  { method: "DELETE", path: /^\/v1\/sandboxes\/([^/]+)$/, action: "sandbox.delete" },
  { method: "POST", path: /^\/v1\/sandboxes\/([^/]+)\/execs$/, action: "exec.start" },
  { method: "PUT", path: /^\/v1\/sandboxes\/([^/]+)\/files(?:\/.*)?$/, action: "file.put" },
  { method: "DELETE", path: /^\/v1\/sandboxes\/([^/]+)\/files(?:\/.*)?$/, action: "file.delete" },
  { method: "DELETE", path: /^\/v1\/execs\/([^/]+)$/, action: "exec.cancel" },
  { method: "POST", path: /^\/v1\/execs\/([^/]+)\/signal$/, action: "exec.signal" },
  { method: "POST", path: /^\/v1\/keys$/, action: "key.create" },
  { method: "POST", path: /^\/v1\/keys\/([^/]+)\/rotate$/, action: "key.rotate" },
  { method: "DELETE", path: /^\/v1\/keys\/([^/]+)$/, action: "key.revoke" },
  { method: "POST", path: /^\/v1\/tasks$/, action: "task.submit" },
  { method: "DELETE", path: /^\/v1\/tasks\/([^/]+)$/, action: "task.cancel" },
  { method: "POST", path: /^\/v1\/workers\/([^/]+)\/release$/, action: "worker.release" },
  { method: "POST", path: /^\/v1\/workers\/([^/]+)\/drain$/, action: "worker.drain" },
  { method: "DELETE", path: /^\/v1\/workers\/([^/]+)$/, action: "worker.remove" },
  { method: "POST", path: /^\/v1\/worker-tokens$/, action: "worker_token.create" },
  { method: "DELETE", path: /^\/v1\/worker-tokens\/([^/]+)$/, action: "worker_token.revoke" },
  { method: "GET", path: /^\/v1\/audit$/, action: "audit.read" },
];

/** Records the actions of the table once they were answered. */
export function recordActions(audit: AuditTrail): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    await next();
    const { method, path } = c.req;
    const found = ACTIONS.find((known) => known.method === method && known.path.test(path));
    if (found === undefined) return;
    const { keyId, tenant } = c.get("principal");
    const whole = { object: objectOf(c, found.path), status: c.res.status };
    for (const { object, status } of c.get("acts") ?? [whole]) {
      audit.record({
        action: found.action,
        key_id: keyId,
        tenant,
        object,
        outcome: status < 400 ? "ok" : status < 500 ? "refused" : "failed",
        status,
        request_id: c.get("requestId"),
      });
    }
  };
}

function objectOf(c: Context<AppEnv>, path: RegExp): string | null {
  const made = c.res.headers.get("location")?.split("/").at(-1);
  const named = made ?? path.exec(c.req.path)?.[1];
  if (named === undefined) return null;
  // A worker's id is what it says of itself: it is one when a worker was found by it.
  const isWorker = c.req.path.startsWith("/v1/workers/") && c.res.status < 400;
  return isId(named) || isWorker ? named : null;
}
