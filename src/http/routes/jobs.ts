/** `/v1/jobs`: submit, list, look, cancel, replay, result. Streams and files have their own. */

import { type Context, Hono } from "hono";
import type { Limits } from "../../core/limits.ts";
import { isTerminal } from "../../core/reasons.ts";
import type { JobService } from "../../jobs/service.ts";
import type { BodyRules } from "../body.ts";
import { listCursor, readCursor } from "../cursors.ts";
import type { AppEnv } from "../env.ts";
import { listParameters, readParameters, resultParameters } from "../parameters.ts";
import { patiently } from "../patiently.ts";
import { readQuery } from "../query.ts";
import { readReplay, replayResponse } from "../replay-answer.ts";
import type { StreamedAnswers } from "../streamed.ts";
import { submitRoutes } from "./submit.ts";

/** How long a cancel waits for the end before it answers 202. */
export const CANCEL_WAIT_MS = 10_000;

const JSON_HEADERS = { "Content-Type": "application/json" };

/** What the routes work with. */
export interface JobRoutesOptions {
  readonly jobs: JobService;
  /** The server's ceilings, for keys without their own. */
  readonly ceilings: Limits;
  readonly cancelWaitMs: number;
  readonly bodies: BodyRules;
  readonly streamed: StreamedAnswers;
  /** A job of a batch that failed for a reason which its client is not told. */
  onFailed(c: Context<AppEnv>, error: unknown): void;
}

/** The routes beneath `/v1/jobs`. */
export function jobRoutes(options: JobRoutesOptions): Hono<AppEnv> {
  const { jobs } = options;
  const app = new Hono<AppEnv>();

  app.route("/", submitRoutes(options));

  app.get("/", async (c) => {
    const page = await jobs.list(listQuery(c));
    const views = page.jobs.map((job) => jobs.view(job));
    return c.json({ jobs: views, next_cursor: listCursor("jobs", page.nextCursor) });
  });

  app.get("/:id", async (c) => {
    readQuery(c, []);
    const job = await jobs.get(c.get("principal").tenant, c.req.param("id"));
    return c.json(jobs.view(job));
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    const job = await patiently(c, options.cancelWaitMs, (bounds) =>
      jobs.cancel(c.get("principal").tenant, c.req.param("id"), bounds),
    );
    return c.json(jobs.view(job), isTerminal(job.status) ? 200 : 202);
  });

  app.get("/:id/result", async (c) => {
    const waitMs = readParameters(c, resultParameters).wait_seconds * 1000;
    const job = await patiently(c, waitMs, (bounds) =>
      jobs.wait(c.get("principal").tenant, c.req.param("id"), bounds),
    );
    return await options.streamed.text(c, jobs.result(job), {
      status: isTerminal(job.status) ? 200 : 202,
      headers: JSON_HEADERS,
    });
  });

  app.get("/:id/replay", (c) => replay(c, options));
  return app;
}

async function replay(c: Context<AppEnv, "/:id/replay">, options: JobRoutesOptions) {
  const { jobs, streamed } = options;
  const asked = readReplay(c);
  const job = await jobs.get(c.get("principal").tenant, c.req.param("id"));
  return await replayResponse(c, streamed, {
    asked,
    source: {
      events: (fromSeq) => jobs.replay(job, fromSeq),
      sealed: () => jobs.exportLog(job),
    },
  });
}

function listQuery(c: Context<AppEnv>) {
  const { limit, cursor, status, language, label } = readParameters(c, listParameters);
  return {
    tenant: c.get("principal").tenant,
    limit,
    ...readCursor("jobs", cursor),
    ...(status === undefined ? {} : { status }),
    ...(language === undefined ? {} : { language }),
    ...(label === undefined ? {} : { label: labelOf(label) }),
  };
}

/** The first `=` ends the name, which has none. */
function labelOf(text: string): { name: string; value: string } {
  const end = text.indexOf("=");
  return { name: text.slice(0, end), value: text.slice(end + 1) };
}
