/** What a server does at start about jobs that another run of it left. */

import type { Clock } from "../core/clock.ts";
import type { EventRow } from "../core/event.ts";
import type { Job } from "../core/job.ts";
import { neverRan } from "../record/failed-outcome.ts";
import type { EventLog, JobStore } from "../store/contract.ts";

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
  readonly events: Pick<EventLog, "head" | "read">;
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
      durationMs: await knownMs(job, options.events),
    };
    const ended = await jobs.finish(job.id, job.owner, outcome, clock.now());
    if (ended === null) continue;
    options.onTerminal(ended);
    interrupted += 1;
  }
  const failed = keepQueued ? 0 : await failQueued(options);
  return { interrupted, failed };
}

/** How long a job is known to have run: until its last event. Nobody knows what came after. */
async function knownMs(job: Job, events: RecoveryOptions["events"]): Promise<number> {
  const subject = `job:${job.id}` as const;
  const head = await events.head(subject);
  if (head === null || job.startedAt === null) return 0;
  const [last] = await events.read(subject, head.count, { limit: 1, maxBytes: 1 });
  if (last === undefined) return 0;
  const { at } = JSON.parse(last.line) as EventRow;
  return Math.max(0, Date.parse(at) - job.startedAt);
}

/** Bounded by the queues: every round takes one job out of them, or ends the loop. */
async function failQueued({ jobs, clock, onTerminal }: RecoveryOptions): Promise<number> {
  const outcome = neverRan("interrupted", {
    message: "The server ended while the job was queued, and was told not to run it",
  });
  for (let failed = 0; ; failed++) {
    const job = (await jobs.next([])) ?? (await jobs.placed({ limit: 1 }))[0];
    if (job === undefined) return failed;
    const ended = await jobs.finish(job.id, null, outcome, clock.now());
    if (ended === null) return failed;
    onTerminal(ended);
  }
}
