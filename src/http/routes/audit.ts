/** `GET /v1/audit`, for administrators: the whole audit log in NDJSON, with its seal. */

import { Hono } from "hono";
import type { AuditTrail } from "../../tenancy/audit-trail.ts";
import type { AppEnv } from "../env.ts";
import { readQuery } from "../query.ts";
import type { StreamedAnswers } from "../streamed.ts";

/** What the route works with. */
export interface AuditRoutesOptions {
  readonly audit: AuditTrail;
  /** The log as it is now, sealed. */
  exportAudit(): AsyncIterable<Uint8Array>;
  readonly streamed: StreamedAnswers;
}

/** The route at `/v1/audit`. */
export function auditRoutes({ audit, exportAudit, streamed }: AuditRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/", async (c) => {
    readQuery(c, []);
    await audit.flush();
    return await streamed.bytes(c, exportAudit(), {
      headers: { "Content-Type": "application/x-ndjson" },
    });
  });
  return app;
}
