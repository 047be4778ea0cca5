/** The shapes in which jobs are sent: snake_case, RFC 3339 times (server.md). */

import { timestamp } from "../core/clock.ts";
import type { Job } from "../core/job.ts";
import type { Limits } from "../core/limits.ts";
import type { LimitHit, Outcome, Usage, Violation } from "../core/outcome.ts";
import type { Reason, Status } from "../core/reasons.ts";

/** Why a queued job waits. */
export interface WaitingView {
  readonly code: string;
  readonly detail: string;
}

/** A job as clients see it. */
export interface JobView {
  readonly job_id: string;
  readonly tenant: string;
  readonly status: Status;
  readonly language: string;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly exit_code: number | null;
  readonly signal: string | null;
  readonly reason: Reason | null;
  readonly limits: Limits;
  readonly usage: Usage | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly waiting?: WaitingView;
  /** Why it could not run. */
  readonly error?: NonNullable<Outcome["error"]>;
}

/** The view of a job. */
export function jobView(job: Job, waiting: WaitingView | null = null): JobView {
  const { outcome } = job;
  return {
    job_id: job.id,
    tenant: job.tenant,
    status: job.status,
    language: job.language,
    created_at: timestamp(job.createdAt),
    started_at: job.startedAt === null ? null : timestamp(job.startedAt),
    finished_at: job.finishedAt === null ? null : timestamp(job.finishedAt),
    exit_code: outcome?.exitCode ?? null,
    signal: outcome?.signal ?? null,
    reason: outcome?.reason ?? null,
    limits: job.limits,
    usage: outcome?.usage ?? null,
    labels: job.labels,
    ...(waiting === null ? {} : { waiting }),
    ...(outcome?.error === undefined ? {} : { error: outcome.error }),
  };
}

/** The fields of a result that need no output; all but status are null before the end. */
export interface ResultHead {
  readonly job_id: string;
  readonly status: Status;
  readonly exit_code: number | null;
  readonly signal: string | null;
  readonly reason: Reason | null;
  readonly duration_ms: number | null;
  readonly usage: Usage | null;
  readonly error?: NonNullable<Outcome["error"]>;
}

/** A whole result, as a client parses it. */
export interface ResultView extends ResultHead {
  readonly stdout: string;
  readonly stderr: string;
  /** The exact bytes, present only where they are no UTF-8. */
  readonly stdout_base64?: string;
  readonly stderr_base64?: string;
  readonly truncated: boolean;
  readonly violations: readonly Violation[];
  readonly limits_hit: readonly LimitHit[];
}

/** The head of a job's result. */
export function resultHead(job: Job): ResultHead {
  const { outcome } = job;
  return {
    job_id: job.id,
    status: job.status,
    exit_code: outcome?.exitCode ?? null,
    signal: outcome?.signal ?? null,
    reason: outcome?.reason ?? null,
    duration_ms: outcome?.durationMs ?? null,
    usage: outcome?.usage ?? null,
    ...(outcome?.error === undefined ? {} : { error: outcome.error }),
  };
}
