/** Shapes of answers about tasks, workers and tokens; the compiler compares them with the views. */

import { z } from "zod";
import { REASONS } from "../core/reasons.ts";
import { type Json, TASK_STATUSES } from "../core/task.ts";
import { nextCursor } from "./answers.ts";
import type {
  MintedAnswerView,
  TaskAnswerView,
  TaskEntryView,
  TokenAnswerView,
  WorkerAnswerView,
} from "./task-views.ts";

const text = z.string();
const texts = z.record(text, text);
const time = z.iso.datetime({ precision: 3 });
const count = z.int().nonnegative();

const waiting = z.strictObject({
  code: z.enum(["no_worker_matches", "all_busy", "tenant_limit"]),
  detail: text,
});

const entryShape = {
  task_id: z.uuid(),
  tenant: text,
  status: z.enum(TASK_STATUSES),
  reason: z.enum(REASONS).nullable().describe("Why it ended, or why its last claim failed."),
  waiting: waiting.exactOptional().describe("Why it waits now, and what would help."),
  runner: text,
  labels: texts,
  repo_url: text.nullable(),
  ref: text.nullable(),
  attempts: count.describe("Claims that were tried."),
  epoch: count.describe("Of the last claim; 0 before the first."),
  worker_id: text.nullable(),
  error: text.nullable(),
  created_at: time,
  started_at: time.nullable(),
  finished_at: time.nullable(),
};

const anything = z.unknown() as unknown as z.ZodType<Json>;

/** A task in a list. */
export const taskEntry: z.ZodType<TaskEntryView> = z.strictObject(entryShape);

/** A task. */
export const task: z.ZodType<TaskAnswerView> = z.strictObject({
  ...entryShape,
  input: anything,
  result: anything,
});

/** A page of tasks. */
export const taskList = z.strictObject({ tasks: z.array(taskEntry), next_cursor: nextCursor });

/** A worker. */
export const worker: z.ZodType<WorkerAnswerView> = z.strictObject({
  worker_id: text,
  name: text,
  labels: texts,
  state: z.enum(["idle", "busy", "draining", "quarantined", "reattaching", "lost"]),
  version: text,
  slots: count,
  busy_slots: count,
  failures: count.describe("Claims in a row that failed."),
  connected_at: time.nullable(),
  last_seen_at: time,
  claims: z
    .array(z.strictObject({ task_id: text, epoch: count }))
    .exactOptional()
    .describe("For administrators."),
  tenants: z
    .array(text)
    .nullable()
    .exactOptional()
    .describe("For administrators: whom it works for; null: every tenant."),
}) as z.ZodType<WorkerAnswerView>;

/** Every worker. */
export const workerList = z.strictObject({ workers: z.array(worker), next_cursor: nextCursor });

const tokenShape = {
  token_id: text,
  name: text,
  worker_id: text.describe("An id, or a pattern that ends with *."),
  labels: texts,
  tenants: z.array(text).nullable().describe("Whom its workers work for; null: every tenant."),
  created_at: time,
  expires_at: time,
  revoked_at: time.nullable(),
};

/** A token, without the token itself. */
export const workerToken = z.strictObject(tokenShape) as unknown as z.ZodType<TokenAnswerView>;

/** A token that was just made. */
export const mintedWorkerToken = z.strictObject({
  ...tokenShape,
  token: text.describe("The token itself, which is not kept."),
}) as unknown as z.ZodType<MintedAnswerView>;

/** Every token. */
export const workerTokenList = z.strictObject({
  worker_tokens: z.array(workerToken),
  next_cursor: nextCursor,
});
