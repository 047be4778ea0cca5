/** The shapes in which jobs are sent: snake_case, RFC 3339 times (server.md). */

import { timestamp } from "../core/clock.ts";
import type { Job } from "../core/job.ts";
import type { Limits } from "../core/limits.ts";
import type { Placement } from "../core/placement.ts";
import type { Status } from "../core/reasons.ts";
import { type OutcomeView, outcomeView, type RunResultView } from "../record/outcome-view.ts";

/** Why a queued job waits. */
export interface WaitingView {
  readonly code: string;
  readonly detail: string;
}

/** A job as clients see it. */
export interface JobView extends OutcomeView {
  readonly job_id: string;
  readonly tenant: string;
  readonly status: Status;
  readonly language: string;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  readonly placement: Placement | null;
  readonly worker_id: string | null;
  readonly waiting?: WaitingView;
}

/** The view of a job. */
export function jobView(job: Job, waiting: WaitingView | null = null): JobView {
  return {
    job_id: job.id,
    tenant: job.tenant,
    status: job.status,
    language: job.language,
    created_at: timestamp(job.createdAt),
    started_at: job.startedAt === null ? null : timestamp(job.startedAt),
    finished_at: job.finishedAt === null ? null : timestamp(job.finishedAt),
    ...outcomeView(job.outcome),
    limits: job.limits,
    labels: job.labels,
    placement: job.placement,
    worker_id: job.workerId,
    ...(waiting === null ? {} : { waiting }),
  };
}

/** A whole result, as a client parses it. */
export interface ResultView extends RunResultView {
  readonly job_id: string;
  readonly status: Status;
}

/** The fields of a job's result that need no output; all but status are null before the end. */
export function resultHead({ id, status, outcome }: Job) {
  const duration_ms = outcome?.durationMs ?? null;
  return { job_id: id, status, ...outcomeView(outcome), duration_ms };
}
