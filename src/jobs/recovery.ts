/** What a server does at start about jobs that another run of it left. */

import type { Clock } from "../core/clock.ts";
import type { Job } from "../core/job.ts";
import type { JobStore } from "../store/contract.ts";
import { neverRan } from "./failed-outcome.ts";

/** What was found and ended. */
export interface Recovered {
  /** Jobs that ran under a dead instance; they are `error`, reason `interrupted`. */
  readonly interrupted: number;
  /** Queued jobs that were failed, because the operator asked for that. */
  readonly failed: number;
}

/** What a recovery works with. */
export interface RecoveryOptions {
  readonly jobs: JobStore;
  readonly clock: Clock;
  /** Instances whose running jobs are left alone. */
  readonly livingInstances: readonly string[];
  /** Whether queued jobs stay queued, to be run once. */
  readonly keepQueued: boolean;
  onTerminal(job: Job): void;
}

/** Ends what no living instance runs. Call it before the queue starts. */
export async function recoverJobs(options: RecoveryOptions): Promise<Recovered> {
  const { jobs, clock, livingInstances, keepQueued } = options;
  let interrupted = 0;
  for (const job of await jobs.orphans(livingInstances)) {
    const outcome = {
      ...neverRan("interrupted", { message: "The server ended while the job was running" }),
      durationMs: Math.max(0, clock.now() - (job.startedAt ?? clock.now())),
    };
    const ended = await jobs.finish(job.id, job.owner, outcome, clock.now());
    if (ended === null) continue;
    options.onTerminal(ended);
    interrupted += 1;
  }
  const failed = keepQueued ? 0 : await failQueued(options);
  return { interrupted, failed };
}

/** Bounded by the queue: every round takes one job out of it, or ends the loop. */
async function failQueued({ jobs, clock, onTerminal }: RecoveryOptions): Promise<number> {
  const outcome = neverRan("interrupted", {
    message: "The server ended while the job was queued, and was told not to run it",
  });
  for (let failed = 0; ; failed++) {
    const job = await jobs.next([]);
    if (job === null) return failed;
    const ended = await jobs.finish(job.id, null, outcome, clock.now());
    if (ended === null) return failed;
    onTerminal(ended);
  }
}
