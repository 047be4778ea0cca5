/** `GET /v1/jobs/{id}/stream`: the events of a job over a WebSocket, from `from_seq` to the end. */

import { Hono } from "hono";
import { isTerminal } from "../../core/reasons.ts";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { readSocketStart, type UpgradeRules, upgradeResponse } from "../upgrade.ts";

/** What the route works with. */
export interface StreamRoutesOptions {
  readonly jobs: JobService;
  readonly sockets: UpgradeRules;
}

/** The stream beneath `/v1/jobs`. */
export function streamRoutes({ jobs, sockets }: StreamRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/:id/stream", async (c) => {
    const fromSeq = readSocketStart(c);
    const { tenant } = c.get("principal");
    const job = await jobs.get(tenant, c.req.param("id"));
    return upgradeResponse(c, sockets, {
      subscribe: (signal) => jobs.subscribe(job, { fromSeq, signal }),
      hasEnded: async () => isTerminal((await jobs.get(tenant, job.id)).status),
    });
  });
  return app;
}
