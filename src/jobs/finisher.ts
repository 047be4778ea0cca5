/** Writes the terminal state of a job, and tries again for as long as storing fails. */

import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Job, JobOwner } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { JobStore } from "../store/contract.ts";

/** Waits between attempts, in milliseconds; the last repeats until the server stops. */
export const FINISH_RETRY_MS: readonly number[] = [50, 200, 1000, 3000, 5000, 10_000, 10_000];

/** What a finisher works with. */
export interface FinisherOptions {
  readonly jobs: Pick<JobStore, "finish">;
  readonly clock: Clock;
  readonly log: Log;
  /** Aborted when the server stops: then the listed waits have to be enough. */
  readonly stopping: AbortSignal;
  /** Tests give short ones. */
  readonly retryMs?: readonly number[];
}

/**
 * Finishes a job. What could not be stored stays with the caller's slot, which bounds how much waits.
 *
 * @param owner null while it is queued
 * @returns null when it had already ended, or belongs to another owner
 * @throws the last failure, when the server stops or the store is gone; the next start of the server
 *   then ends the job as `interrupted`
 */
export async function finishJob(
  job: { readonly id: string; readonly owner: JobOwner | null; readonly outcome: Outcome },
  options: FinisherOptions,
): Promise<Job | null> {
  const { jobs, clock, log, stopping, retryMs: waits = FINISH_RETRY_MS } = options;
  for (let attempt = 0; ; attempt++) {
    try {
      return await jobs.finish(job.id, job.owner, job.outcome, clock.now());
    } catch (error) {
      const listedMs = waits[attempt];
      if (isStoreGone(error) || (listedMs === undefined && stopping.aborted)) throw error;
      const waitMs = listedMs ?? waits.at(-1) ?? 0;
      const fields = { job_id: job.id, attempt: attempt + 1, retry_ms: waitMs, error };
      log.warn("job end not stored, trying again", fields);
      if (listedMs === undefined) await sleepUntil(waitMs, stopping);
      else await Bun.sleep(waitMs);
    }
  }
}

/** No attempt can succeed any more. */
function isStoreGone(error: unknown): boolean {
  const reason = CprgError.is(error) ? error.reason : undefined;
  return reason === "STORE_DIED" || reason === "STORE_CLOSED";
}

/** Sleeps, but not longer than until the signal. */
async function sleepUntil(waitMs: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, waitMs);
  const onAbort = (): void => resolve();
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) resolve();
  await promise;
  clearTimeout(timer);
  signal.removeEventListener("abort", onAbort);
}
