/** Shapes of answers, as `/openapi.json` describes them; the compiler compares them with the views. */

import { z } from "zod";
import { LIMIT_NAMES, type Limits } from "../core/limits.ts";
import type { LimitHit, Usage, Violation } from "../core/outcome.ts";
import { REASONS, STATUSES } from "../core/reasons.ts";
import type { JobView, ResultView } from "../jobs/views.ts";
import type { Problem } from "./problem.ts";

const text = z.string();
const count = z.int().min(0);
const time = z.iso.datetime({ precision: 3 });
const id = z.uuid();

/** All limits, in force. */
export const limits = z.strictObject(
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, z.number()])),
) as unknown as z.ZodType<Limits>;

/** What a run used. */
export const usage: z.ZodType<Usage> = z.strictObject({
  cpu_ms: z.number(),
  memory_peak_bytes: z.number().nullable(),
  pids_peak: z.number().nullable(),
});

/** Why a run could not be. */
export const failure = z
  .strictObject({ message: text, step: text.exactOptional(), hint: text.exactOptional() })
  .describe("Why it could not run.");

/** A problem document (RFC 9457). */
export const problem: z.ZodType<Problem> = z.strictObject({
  type: z.literal("about:blank"),
  title: text,
  status: z.int().min(400).max(599),
  code: text as unknown as z.ZodType<Problem["code"]>,
  detail: text,
  reason: text.exactOptional().describe("A word for programs."),
  hint: text.exactOptional().describe("What to do about it."),
  field: text.exactOptional().describe("What is at fault in the request."),
  request_id: id,
});

/** What was asked of a worker. */
export const placement = z
  .strictObject({ labels: z.record(text, text) })
  .nullable()
  .describe("What its worker must have; null: it is on this server's own host.");
/** Which worker something is on. */
export const workerId = text.nullable().describe("The worker that has it, or had it.");

/** A job. */
export const job: z.ZodType<JobView> = z.strictObject({
  job_id: id,
  tenant: text,
  status: z.enum(STATUSES),
  language: text,
  created_at: time,
  started_at: time.nullable(),
  finished_at: time.nullable(),
  exit_code: z.int().nullable(),
  signal: text.nullable(),
  reason: z.enum(REASONS).nullable(),
  limits,
  usage: usage.nullable(),
  labels: z.record(text, text),
  placement,
  worker_id: workerId,
  waiting: z
    .strictObject({ code: text, detail: text })
    .exactOptional()
    .describe("Why it is queued still."),
  error: failure.exactOptional(),
});

/** The answer to a batch. */
export const batch = z.strictObject({
  jobs: z.array(z.union([job, problem])).describe("A job or a problem each, in order."),
});

/** Where the next page begins. */
export const nextCursor = text.nullable().describe("Null on the last page.");

/** A page of jobs. */
export const jobList = z.strictObject({ jobs: z.array(job), next_cursor: nextCursor });

const violation: z.ZodType<Violation> = z.strictObject({
  type: z.literal("seccomp_violation"),
  syscall: text.exactOptional(),
  nr: z.number().exactOptional(),
  arch: text.exactOptional(),
});

const limitHit: z.ZodType<LimitHit> = z.strictObject({
  limit: z.enum(LIMIT_NAMES as unknown as [LimitHit["limit"]]),
  value: z.number(),
  observed: z.number(),
  sampled: z.boolean(),
});

/** What any run did, with its output. */
export const resultFields = {
  exit_code: z.int().nullable(),
  signal: text.nullable(),
  reason: z.enum(REASONS).nullable(),
  duration_ms: z.number().nullable(),
  usage: usage.nullable(),
  error: failure.exactOptional(),
  stdout: text,
  stderr: text,
  stdout_base64: text.exactOptional().describe("The exact bytes, where they are no UTF-8."),
  stderr_base64: text.exactOptional(),
  truncated: z.boolean(),
  violations: z.array(violation),
  limits_hit: z.array(limitHit),
};

/** What a job did, with its output. */
export const result: z.ZodType<ResultView> = z.strictObject({
  job_id: id,
  status: z.enum(STATUSES),
  ...resultFields,
});

/** A line of a log. */
export const event = z.strictObject({
  seq: z.int().min(1),
  at: time,
  kind: text,
  data: z.unknown().describe("Text of stdout and stderr, an object of other kinds."),
  encoding: z.literal("base64").exactOptional(),
  hash: text.regex(/^[0-9a-f]{64}$/).describe("SHA-256 over the previous hash and this line."),
});

/** Events of a job. */
export const replay = z.strictObject({
  job_id: id,
  events: z.array(event),
  complete: z.boolean().describe("Whether the job has ended."),
});

/** What a job left in /workspace/out. */
export const fileList = z.strictObject({
  job_id: id,
  files: z.array(
    z.strictObject({
      path: text.describe("A program chose it: it is no path to use unseen."),
      size: count,
      mode: count.describe("Permission bits."),
    }),
  ),
  problem: text.nullable().describe("Why none is kept, although there were some."),
  next_cursor: nextCursor,
});

/** Languages of this host. */
export const languageList = z.strictObject({
  languages: z.array(z.strictObject({ name: text, version: text, executable: text })),
  next_cursor: nextCursor,
});

/** What this server is. */
export const serverStatus = z.strictObject({
  version: text,
  instance: text,
  uptime_seconds: count,
  sandbox: text,
  layers: z.record(text, z.union([z.boolean(), text])),
  missing: z.array(text),
  privileges: z.strictObject({ reduced: z.boolean(), capabilities: z.array(text) }),
  slots: count,
  tenant_concurrency: count,
  running: count,
  queued: count,
  limits: z.strictObject({ defaults: limits, ceilings: limits }),
});

/** Whether the server works. */
export const health = z.strictObject({
  ok: z.boolean(),
  sandbox: text,
  missing: z.array(text),
  reason: text.exactOptional(),
});

/** What there is. */
export const index = z.strictObject({ name: text, version: text, api: text, health: text });
