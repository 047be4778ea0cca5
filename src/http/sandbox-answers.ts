/** Shapes of answers about sandboxes and execs; the compiler compares them with the views. */

import { z } from "zod";
import { REASONS, STATUSES } from "../core/reasons.ts";
import type { RunResultView } from "../record/outcome-view.ts";
import type { ExecView, SandboxView } from "../sandboxes/views.ts";
import {
  event,
  failure,
  limits,
  nextCursor,
  placement,
  resultFields,
  usage,
  workerId,
} from "./answers.ts";

const text = z.string();
const time = z.iso.datetime({ precision: 3 });
const id = z.uuid();
const reason = z.enum(REASONS).nullable();
const execStatus = z.enum(STATUSES).exclude(["queued"]);

/** A sandbox. */
export const sandbox: z.ZodType<SandboxView> = z.strictObject({
  sandbox_id: id,
  tenant: text,
  status: z.enum(["open", "ended"]),
  reason: reason.describe("Why it ended."),
  limits,
  labels: z.record(text, text),
  placement,
  worker_id: workerId,
  idle_seconds: z.number(),
  lifetime_seconds: z.number(),
  created_at: time,
  expires_at: time.describe("When it ends at the latest."),
  ended_at: time.nullable(),
});

/** A page of sandboxes. */
export const sandboxList = z.strictObject({
  sandboxes: z.array(sandbox),
  next_cursor: nextCursor,
});

/** An exec. */
export const exec: z.ZodType<ExecView> = z.strictObject({
  exec_id: id,
  sandbox_id: id,
  tenant: text,
  status: execStatus,
  argv: z.array(text),
  tty: z.boolean(),
  created_at: time,
  finished_at: time.nullable(),
  exit_code: z.int().nullable(),
  signal: text.nullable(),
  reason,
  limits,
  usage: usage.nullable(),
  error: failure.exactOptional(),
});

/** A page of execs. */
export const execList = z.strictObject({ execs: z.array(exec), next_cursor: nextCursor });

type ExecResultView = Pick<ExecView, "exec_id" | "sandbox_id" | "status"> & RunResultView;

/** What an exec did, with its output. */
export const execResult: z.ZodType<ExecResultView> = z.strictObject({
  exec_id: id,
  sandbox_id: id,
  status: execStatus,
  ...resultFields,
});

/** Events of an exec. */
export const execReplay = z.strictObject({
  exec_id: id,
  events: z.array(event),
  complete: z.boolean().describe("Whether the exec has ended."),
});
