/** Writes the terminal state of a job, and tries again for a bounded time when storing fails. */

import type { Clock } from "../core/clock.ts";
import type { Job, JobOwner } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { JobStore } from "../store/contract.ts";

/** Waits between attempts, in milliseconds: a disk that is full for half a minute loses nothing. */
export const FINISH_RETRY_MS: readonly number[] = [50, 200, 1000, 3000, 5000, 10_000, 10_000];

/** What a finisher works with. */
export interface FinisherOptions {
  readonly jobs: Pick<JobStore, "finish">;
  readonly clock: Clock;
  readonly log: Log;
  /** Tests give short ones. */
  readonly retryMs?: readonly number[];
}

/**
 * Finishes a job.
 *
 * @param owner null while it is queued
 * @returns null when it had already ended, or belongs to another owner
 * @throws the last failure; the next start of the server then ends the job as `interrupted`
 */
export async function finishJob(
  job: { readonly id: string; readonly owner: JobOwner | null; readonly outcome: Outcome },
  options: FinisherOptions,
): Promise<Job | null> {
  const waits = options.retryMs ?? FINISH_RETRY_MS;
  for (let attempt = 0; ; attempt++) {
    try {
      return await options.jobs.finish(job.id, job.owner, job.outcome, options.clock.now());
    } catch (error) {
      const waitMs = waits[attempt];
      if (waitMs === undefined) throw error;
      const fields = { job_id: job.id, attempt: attempt + 1, retry_ms: waitMs, error };
      options.log.warn("job end not stored, trying again", fields);
      await Bun.sleep(waitMs);
    }
  }
}
