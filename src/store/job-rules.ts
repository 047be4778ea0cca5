/** The rules of jobs that every store keeps in the same way. */

import { CprgError } from "../core/errors.ts";
import type { Job, JobOwner, JobSpec } from "../core/job.ts";
import type { TimedDraft } from "./contract.ts";
import type { JobPlace } from "./job-cursor.ts";

/** Older first; ids decide within one millisecond. */
export function byAge(a: JobPlace, b: JobPlace): number {
  if (a.createdAt !== b.createdAt) return a.createdAt - b.createdAt;
  return a.id < b.id ? -1 : Number(a.id > b.id);
}

/** Whether a job may be finished by this owner: the one who runs it, or nobody while it waits. */
export function isFinishableBy(job: Job, owner: JobOwner | null): boolean {
  if (owner === null) return job.status === "queued";
  return (
    job.status === "running" &&
    job.owner?.instance === owner.instance &&
    job.owner.epoch === owner.epoch
  );
}

/** Characters of a job's code that are kept after its end, for whoever asks what ran. */
export const KEPT_CODE_CHARS = 64 * 1024;

/** What is kept of a spec after the end: neither files nor standard input, code up to a bound. */
export function keptSpec(spec: JobSpec): JobSpec {
  const code = spec.code?.slice(0, KEPT_CODE_CHARS) ?? null;
  return { ...spec, code, files: [], stdinBase64: null };
}

/** The first event of a job. */
export function queuedDraft(job: Job): TimedDraft {
  const data = { language: job.language, limits: job.limits };
  return { at: job.createdAt, draft: { kind: "queued", data } };
}

/**
 * @throws CprgError `already_exists` when a job has the id, `failed_precondition` when the new job
 *   does not wait
 */
export function checkInsert(job: Job, existing: unknown): void {
  if (existing !== null) {
    throw new CprgError("already_exists", `Cannot insert job "${job.id}": it exists already`, {
      op: "insert job",
    });
  }
  if (job.status !== "queued") {
    throw new CprgError("failed_precondition", `Cannot insert job "${job.id}": ${job.status}`, {
      op: "insert job",
    });
  }
}

/** What a tenant's first finished log has in place of a previous head: 32 zero bytes. */
export function noPreviousHead(): Uint8Array {
  return new Uint8Array(32);
}
