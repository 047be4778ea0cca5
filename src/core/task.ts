/**
 * A task: work that a runner does with a claimed worker. What is known of it, and the only ways it
 * may change. A claim has an epoch that grows at each attempt: whoever speaks of an older one is
 * refused, so that nothing of a lost claim can change what a later one does.
 */

import { CprgError } from "./errors.ts";
import type { Reason } from "./reasons.ts";

/** Every status a task can have. */
export const TASK_STATUSES = [
  "queued",
  "claiming",
  "running",
  "succeeded",
  "failed",
  "cancelled",
] as const;

/** One of {@link TASK_STATUSES}. */
export type TaskStatus = (typeof TASK_STATUSES)[number];

/** A status that never changes again. */
export type TaskEndStatus = Exclude<TaskStatus, "queued" | "claiming" | "running">;

/** How often a claim is tried before the task fails: no program has run yet. */
export const CLAIM_ATTEMPTS_MAX = 3;

/** Claims of one task in all, those that do not count as tries too. */
export const CLAIM_EPOCHS_MAX = 100;

/** What JSON can say. */
export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [name: string]: Json };

/** A task as the store keeps it. Times are milliseconds since 1970. */
export interface Task {
  readonly id: string;
  readonly tenant: string;
  readonly status: TaskStatus;
  /** Why it ended, or why the last claim failed; null when there is nothing to say. */
  readonly reason: Reason | null;
  /** Which runner does it. */
  readonly runner: string;
  readonly input: Json;
  /** What a worker must have. */
  readonly labels: Readonly<Record<string, string>>;
  readonly repoUrl: string | null;
  readonly ref: string | null;
  /** Claims that were tried. */
  readonly attempts: number;
  /** Of the last claim; 0 before the first. */
  readonly epoch: number;
  /** Whose claim it is; null while it waits. */
  readonly workerId: string | null;
  readonly result: Json;
  readonly error: string | null;
  readonly createdAt: number;
  /** When it was running first. */
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
}

/** How a task ended. */
export interface TaskEnd {
  readonly status: TaskEndStatus;
  readonly reason: Reason;
  /** Of one that succeeded. */
  readonly result?: Json;
  /** Of one that failed, for people. */
  readonly error?: string;
}

/** What can happen to a task. */
export type TaskChange =
  | { readonly type: "claim"; readonly at: number; readonly workerId: string }
  | { readonly type: "run"; readonly at: number; readonly epoch: number }
  | {
      /** The claim failed before anything ran. */
      readonly type: "unclaim";
      readonly at: number;
      readonly epoch: number;
      readonly reason: Reason;
      readonly error: string;
      /** Nobody tried: it does not count, unless there are {@link CLAIM_EPOCHS_MAX} of them. */
      readonly isUncounted?: boolean;
    }
  | {
      readonly type: "finish";
      readonly at: number;
      /** The claim that speaks; null: whoever owns the task does, whatever its claim is. */
      readonly epoch: number | null;
      readonly end: TaskEnd;
    };

/** Which statuses a change begins from. */
const BEGINS: Readonly<Record<TaskChange["type"], readonly TaskStatus[]>> = {
  claim: ["queued"],
  run: ["claiming"],
  unclaim: ["claiming"],
  finish: ["queued", "claiming", "running"],
};

/** Whether a task has ended. */
export function hasTaskEnded({ status }: Pick<Task, "status">): boolean {
  return status !== "queued" && status !== "claiming" && status !== "running";
}

/**
 * The task after a change; pure.
 *
 * @throws CprgError `aborted` with reason STALE_EPOCH for another claim than the last one,
 *   `failed_precondition` with reason TASK_STATUS for a change that its status does not allow
 */
export function reduceTask(task: Task, change: TaskChange): Task {
  if (!BEGINS[change.type].includes(task.status)) throw wrongStatus(task, change);
  if (change.type === "claim") {
    const { attempts, epoch } = task;
    const { workerId } = change;
    return { ...task, status: "claiming", workerId, attempts: attempts + 1, epoch: epoch + 1 };
  }
  if (change.epoch !== null && change.epoch !== task.epoch) throw staleEpoch(task, change.epoch);
  if (change.type === "run") return { ...task, status: "running", startedAt: change.at };
  if (change.type === "finish") return ended(task, change.end, change.at);
  const { reason, error, isUncounted = false } = change;
  if (isUncounted && task.epoch < CLAIM_EPOCHS_MAX) {
    return { ...task, status: "queued", workerId: null, attempts: task.attempts - 1 };
  }
  if (task.attempts < CLAIM_ATTEMPTS_MAX) {
    return { ...task, status: "queued", workerId: null, reason, error };
  }
  return ended(task, { status: "failed", reason, error }, change.at);
}

function ended(task: Task, end: TaskEnd, finishedAt: number): Task {
  const { status, reason, result = null, error = null } = end;
  return { ...task, status, reason, result, error, finishedAt };
}

function wrongStatus({ id, status }: Task, { type }: TaskChange): CprgError {
  return new CprgError("failed_precondition", `Cannot ${type} task "${id}": it is ${status}`, {
    op: `${type} task`,
    reason: "TASK_STATUS",
  });
}

function staleEpoch({ id, epoch }: Task, spoken: number): CprgError {
  const message = `Cannot change task "${id}": epoch ${spoken} is not ${epoch}, its last claim's`;
  return new CprgError("aborted", message, { reason: "STALE_EPOCH", retryable: false });
}
