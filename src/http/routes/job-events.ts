/** `GET /v1/jobs/{id}/events`: the events of a job as server-sent events, from any to the end. */

import { Hono } from "hono";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { followResponse, readFollow } from "../follow.ts";
import type { StreamedAnswers } from "../streamed.ts";

/** What the route works with. */
export interface JobEventRoutesOptions {
  readonly jobs: JobService;
  readonly streamed: StreamedAnswers;
}

/** The events beneath `/v1/jobs`. */
export function jobEventRoutes({ jobs, streamed }: JobEventRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/:id/events", async (c) => {
    const fromSeq = readFollow(c);
    const job = await jobs.get(c.get("principal").tenant, c.req.param("id"));
    return await followResponse(c, streamed, {
      subscribe: (signal) => jobs.subscribe(job, { fromSeq, signal }),
    });
  });
  return app;
}
