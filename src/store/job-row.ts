/** A job as a row of the `jobs` table, and back. */

import type { Job } from "../core/job.ts";
import type { Limits } from "../core/limits.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Placement } from "../core/placement.ts";
import type { Status } from "../core/reasons.ts";

/** Columns of `jobs`; structures are JSON. */
export type JobRow = {
  id: string;
  tenant: string;
  status: string;
  language: string;
  limits: string;
  labels: string;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
  instance: string | null;
  /** How often it was started; 0 before the first time. */
  epoch: number;
  outcome: string | null;
  placement: string | null;
  worker: string | null;
};

/** Columns of a job. */
export function toRow(job: Job): JobRow {
  return {
    id: job.id,
    tenant: job.tenant,
    status: job.status,
    language: job.language,
    limits: JSON.stringify(job.limits),
    labels: JSON.stringify(job.labels),
    created_at: job.createdAt,
    started_at: job.startedAt,
    finished_at: job.finishedAt,
    instance: job.owner?.instance ?? null,
    epoch: job.owner?.epoch ?? 0,
    outcome: job.outcome === null ? null : JSON.stringify(job.outcome),
    placement: job.placement === null ? null : JSON.stringify(job.placement),
    worker: job.workerId,
  };
}

/** The job of a row, which {@link toRow} made. */
export function toJob(row: JobRow): Job {
  return {
    id: row.id,
    tenant: row.tenant,
    status: row.status as Status,
    language: row.language,
    limits: JSON.parse(row.limits) as Limits,
    labels: JSON.parse(row.labels) as Record<string, string>,
    placement: row.placement === null ? null : (JSON.parse(row.placement) as Placement),
    workerId: row.worker,
    createdAt: row.created_at,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
    owner: row.instance === null ? null : { instance: row.instance, epoch: row.epoch },
    outcome: row.outcome === null ? null : (JSON.parse(row.outcome) as Outcome),
  };
}
