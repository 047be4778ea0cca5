/** The rules of tasks that every store keeps in the same way. */

import { CprgError } from "../core/errors.ts";
import { hasTaskEnded, type Task, type TaskChange } from "../core/task.ts";
import type { TimedDraft } from "./contract.ts";

/** Most bytes of a task's input, of its result and of its sealed environment, as they are kept. */
export const TASK_INPUT_BYTES_MAX = 1024 * 1024;
export const TASK_RESULT_BYTES_MAX = 1024 * 1024;
export const TASK_ENV_BYTES_MAX = 256 * 1024;
/** Most characters of a task's error. */
export const TASK_ERROR_CHARS_MAX = 8192;

/**
 * @throws CprgError `already_exists` when a task has the id, `failed_precondition` when the new one
 *   does not wait, `invalid_argument` when something of it is too large
 */
export function checkTaskInsert(
  task: Task,
  { existing, sealedEnv }: { existing: unknown; sealedEnv: Uint8Array | null },
): void {
  if (existing !== null) {
    throw new CprgError("already_exists", `Cannot insert task "${task.id}": it exists already`, {
      op: "insert task",
    });
  }
  if (task.status !== "queued" || task.attempts !== 0 || task.epoch !== 0) {
    throw new CprgError(
      "failed_precondition",
      `Cannot insert task "${task.id}": it does not wait`,
      {
        op: "insert task",
      },
    );
  }
  checkSize("input", Buffer.byteLength(JSON.stringify(task.input)), TASK_INPUT_BYTES_MAX);
  checkSize("env", sealedEnv?.length ?? 0, TASK_ENV_BYTES_MAX);
}

/** @throws CprgError `invalid_argument` for an end that is too large */
export function checkTaskChange(change: TaskChange): void {
  if (change.type !== "finish") return;
  const { result = null, error = "" } = change.end;
  checkSize("result", Buffer.byteLength(JSON.stringify(result)), TASK_RESULT_BYTES_MAX);
  checkSize("error", error.length, TASK_ERROR_CHARS_MAX);
}

function checkSize(field: string, size: number, most: number): void {
  if (size <= most) return;
  throw new CprgError("invalid_argument", `Cannot keep ${field} of a task: above ${most} bytes`, {
    field,
  });
}

/** What the log says of a task as it is now. */
export function taskDraft(task: Task, at: number): TimedDraft {
  if (hasTaskEnded(task)) return { at, draft: { kind: "finished", data: finishedData(task, at) } };
  const { epoch, workerId, reason, error } = task;
  const data = { status: task.status as "queued", epoch, worker_id: workerId, reason };
  return { at, draft: { kind: "task", data: error === null ? data : { ...data, error } } };
}

function finishedData({ status, reason, error, startedAt }: Task, at: number) {
  return {
    status: status as "succeeded" | "failed" | "cancelled",
    exit_code: null,
    signal: null,
    reason: reason ?? "runner_error",
    duration_ms: Math.max(0, at - (startedAt ?? at)),
    killed: 0,
    usage: null,
    ...(error === null ? {} : { error: { message: error } }),
  };
}

/** The error of an id that no task has. */
export function taskNotFound(id: string): CprgError {
  return new CprgError("not_found", `Cannot find task "${id.slice(0, 64)}": there is none`, {
    reason: "TASK_NOT_FOUND",
  });
}
