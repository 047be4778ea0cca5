/** A job: what was asked for, what is known of it, and the only ways it may change. */

import { assert } from "./errors.ts";
import type { Limits } from "./limits.ts";
import { type Outcome, outcomeStatus } from "./outcome.ts";
import type { Placement } from "./placement.ts";
import { isTerminal, type Status } from "./reasons.ts";

/** A file that a job brings along. Paths are relative to the workspace. */
export interface JobFile {
  readonly path: string;
  /** Content in base64: binary safe in every store and transport. */
  readonly base64: string;
  /** Permission bits, default 0644. */
  readonly mode: number;
}

/** What a client asked for, validated, with effective limits. */
export interface JobSpec {
  /** A language of this host, or `argv`. */
  readonly language: string;
  /** Source text; null for `argv` jobs. */
  readonly code: string | null;
  /** Program and arguments of `argv` jobs; arguments after the script otherwise. */
  readonly args: readonly string[];
  /** Standard input in base64; null: /dev/null. */
  readonly stdinBase64: string | null;
  readonly files: readonly JobFile[];
  readonly env: Readonly<Record<string, string>>;
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  /** What its worker must have; null: it runs on the server's own host. */
  readonly placement: Placement | null;
  /** Time between SIGTERM and SIGKILL when the job is cancelled. */
  readonly killGraceSeconds: number;
}

/** Most jobs on one page of a list. */
export const LIST_LIMIT_MAX = 500;

/** Who runs a job: one instance of the server, and which attempt. */
export interface JobOwner {
  readonly instance: string;
  readonly epoch: number;
}

/** A job as the store keeps it. Times are milliseconds since 1970. */
export interface Job {
  readonly id: string;
  readonly tenant: string;
  readonly status: Status;
  readonly language: string;
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  /** As its spec's. */
  readonly placement: Placement | null;
  /** The worker that runs it, or ran it. */
  readonly workerId: string | null;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
  readonly owner: JobOwner | null;
  readonly outcome: Outcome | null;
}

/** What can happen to a job. */
export type JobChange =
  | {
      readonly type: "start";
      readonly at: number;
      readonly owner: JobOwner;
      readonly workerId: string | null;
    }
  | { readonly type: "finish"; readonly at: number; readonly outcome: Outcome };

/** Whether a change is allowed: queued may start or finish, running may finish, terminal nothing. */
export function canChange(job: Job, change: JobChange): boolean {
  if (isTerminal(job.status)) return false;
  return change.type === "finish" || job.status === "queued";
}

/** The job after a change; pure. The caller asked {@link canChange} first. */
export function reduceJob(job: Job, change: JobChange): Job {
  assert(canChange(job, change), `job ${job.id} is ${job.status}, cannot ${change.type}`);
  if (change.type === "start") {
    const { at, owner, workerId } = change;
    return { ...job, status: "running", startedAt: at, owner, workerId };
  }
  const { outcome } = change;
  return {
    ...job,
    status: outcomeStatus(outcome),
    finishedAt: change.at,
    outcome,
  };
}
