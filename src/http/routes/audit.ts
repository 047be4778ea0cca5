/** `GET /v1/audit`, for administrators: the whole audit log in NDJSON, with its seal. */

import { type Context, Hono } from "hono";
import type { AuditTrail } from "../../tenancy/audit-trail.ts";
import type { AppEnv } from "../env.ts";
import { readQuery } from "../query.ts";
import { bytesResponse } from "../streamed.ts";

/** What the route works with. */
export interface AuditRoutesOptions {
  readonly audit: AuditTrail;
  /** The log as it is now, sealed. */
  exportAudit(): AsyncIterable<Uint8Array>;
  onBroken(c: Context<AppEnv>, error: unknown): void;
}

/** The route at `/v1/audit`. */
export function auditRoutes({ audit, exportAudit, onBroken }: AuditRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/", async (c) => {
    readQuery(c, []);
    await audit.flush();
    return await bytesResponse(exportAudit(), {
      headers: { "Content-Type": "application/x-ndjson" },
      onBroken: (error) => onBroken(c, error),
    });
  });
  return app;
}
