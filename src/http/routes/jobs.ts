/** `/v1/jobs`: submit, list, look, cancel, replay, result. The stream has its own file. */

import { type Context, Hono } from "hono";
import { invalid } from "../../core/errors.ts";
import { LIST_LIMIT_MAX } from "../../core/job.ts";
import type { Limits } from "../../core/limits.ts";
import { isTerminal, STATUSES, type Status } from "../../core/reasons.ts";
import type { JobService } from "../../jobs/service.ts";
import { jobSpec } from "../../jobs/spec.ts";
import { jobView } from "../../jobs/views.ts";
import { prefersNdjson } from "../accept.ts";
import { type BodyRules, readJson } from "../body.ts";
import type { AppEnv } from "../env.ts";
import { ANSWER_IDLE_SECONDS, NO_IDLE_TIMEOUT } from "../idle.ts";
import { type Query, readNumber, readQuery } from "../query.ts";
import { jobRequest } from "../schemas.ts";
import { bytesResponse, textResponse } from "../streamed.ts";

/** Jobs on a page of the list. */
export const LIST_LIMIT_DEFAULT = 50;
/** How long a result may be waited for. */
export const WAIT_SECONDS_DEFAULT = 60;
export const WAIT_SECONDS_MAX = 300;
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
  /** A body that broke off while it was sent. */
  onBroken(c: Context<AppEnv>, error: unknown): void;
}

/** The routes beneath `/v1/jobs`. */
export function jobRoutes(options: JobRoutesOptions): Hono<AppEnv> {
  const { jobs } = options;
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    refuseIdempotencyKey(c);
    const { tenant, ceilings } = c.get("principal");
    const spec = jobSpec(
      jobRequest(await readJson(c, options.bodies)),
      ceilings ?? options.ceilings,
    );
    const job = await jobs.submit(tenant, spec);
    c.header("Location", `/v1/jobs/${job.id}`);
    return c.json(jobView(job), 201);
  });

  app.get("/", async (c) => {
    const query = readQuery(c, ["limit", "cursor", "status", "language"]);
    const page = await jobs.list(listQuery(c.get("principal").tenant, query));
    const views = page.jobs.map((job) => jobs.view(job));
    return c.json({ jobs: views, next_cursor: page.nextCursor });
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
    const query = readQuery(c, ["wait_seconds"]);
    const range = { min: 0, max: WAIT_SECONDS_MAX, default: WAIT_SECONDS_DEFAULT, fraction: true };
    const waitMs = readNumber(query, "wait_seconds", range) * 1000;
    const job = await patiently(c, waitMs, (bounds) =>
      jobs.wait(c.get("principal").tenant, c.req.param("id"), bounds),
    );
    return await textResponse(jobs.result(job), {
      status: isTerminal(job.status) ? 200 : 202,
      headers: JSON_HEADERS,
      onBroken: (error) => options.onBroken(c, error),
    });
  });

  app.get("/:id/replay", (c) => replay(c, options));
  return app;
}

/** A client that sends one relies on it: silence would run its job twice. */
function refuseIdempotencyKey(c: Context<AppEnv>): void {
  if (c.req.header("idempotency-key") === undefined) return;
  throw invalid("Idempotency-Key", "Cannot use header Idempotency-Key: not supported yet");
}

async function replay(c: Context<AppEnv, "/:id/replay">, options: JobRoutesOptions) {
  const { jobs } = options;
  const query = readQuery(c, ["from_seq", "format"]);
  const job = await jobs.get(c.get("principal").tenant, c.req.param("id"));
  const onBroken = (error: unknown): void => options.onBroken(c, error);
  if (!isExport(c, query)) {
    const fromSeq = readFromSeq(query);
    return await textResponse(jobs.replay(job, fromSeq), { headers: JSON_HEADERS, onBroken });
  }
  if (query["from_seq"] !== undefined) {
    throw invalid("from_seq", "Cannot use from_seq with NDJSON: a sealed export is the whole log");
  }
  const headers = { "Content-Type": "application/x-ndjson" };
  return await bytesResponse(jobs.exportLog(job), { headers, onBroken });
}

function isExport(c: Context<AppEnv>, query: Query): boolean {
  const format = query["format"];
  if (format === undefined) return prefersNdjson(c.req.header("accept"));
  if (format === "ndjson" || format === "json") return format === "ndjson";
  throw invalid("format", `Cannot use format "${format.slice(0, 64)}": json or ndjson`);
}

/** The first event wanted. */
export function readFromSeq(query: Query): number {
  return readNumber(query, "from_seq", { min: 1, max: Number.MAX_SAFE_INTEGER, default: 1 });
}

function listQuery(tenant: string, query: Query) {
  const { cursor, status, language } = query;
  if (status !== undefined && !(STATUSES as readonly string[]).includes(status)) {
    throw invalid(
      "status",
      `Cannot use status "${status.slice(0, 64)}": unknown name`,
      `Known: ${STATUSES.join(", ")}`,
    );
  }
  return {
    tenant,
    limit: readNumber(query, "limit", { min: 1, max: LIST_LIMIT_MAX, default: LIST_LIMIT_DEFAULT }),
    ...(cursor === undefined ? {} : { cursor }),
    ...(status === undefined ? {} : { status: status as Status }),
    ...(language === undefined ? {} : { language }),
  };
}

/** Waits with a deadline of its own; a client that goes away ends the wait. */
export async function patiently<T>(
  c: Context<AppEnv>,
  waitMs: number,
  wait: (bounds: { waitMs: number; signal: AbortSignal }) => Promise<T>,
): Promise<T> {
  const { listener } = c.env ?? {};
  listener?.setIdleTimeout(c.req.raw, NO_IDLE_TIMEOUT);
  try {
    return await wait({ waitMs, signal: c.req.raw.signal });
  } finally {
    listener?.setIdleTimeout(c.req.raw, ANSWER_IDLE_SECONDS);
  }
}
