/** `cprg run` in this process: an engine, a log in memory, one job. */

import { type Clock, systemClock } from "../core/clock.ts";
import type { EventDraft } from "../core/event.ts";
import { newId } from "../core/ids.ts";
import type { Job, JobSpec } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import { eventOf } from "../core/output-text.ts";
import type { JobLanguages } from "../jobs/languages.ts";
import { runJob } from "../jobs/run.ts";
import type { StopSwitch } from "../jobs/stop-switch.ts";
import type { ExecProvider, Reservation } from "../provider/contract.ts";
import { neverRan } from "../record/failed-outcome.ts";
import type { Store } from "../store/contract.ts";
import { DEFAULT_TENANT } from "../tenancy/keys.ts";

/** What one run works with. */
export interface LocalRun {
  readonly spec: JobSpec;
  readonly provider: ExecProvider;
  readonly languages: JobLanguages;
  /** Keeps the log. */
  readonly store: Store;
  readonly stop: StopSwitch;
  /** Sees each event after it was recorded; what it awaits holds back the program. */
  show(draft: EventDraft): Promise<void>;
  readonly log: Log;
  readonly clock?: Clock;
}

/**
 * Runs a job to its end.
 *
 * @returns the job with its outcome; its log is in the store
 * @throws CprgError when its limits can never fit on this host
 */
export async function runLocally(run: LocalRun): Promise<Job> {
  const { spec, store, stop, clock = systemClock } = run;
  const job = newJob(spec, clock.now());
  await store.jobs.insert(job, spec);
  const reservation = await reserve(run);
  if (reservation === null) return await finish(store, job, clock);
  const started = await store.jobs.start(job.id, newId(), clock.now());
  if (started === null) {
    reservation.cancel();
    return job;
  }
  const subject = `job:${job.id}` as const;
  const outcome = await runJob({
    spec,
    provider: run.provider,
    reservation,
    languages: run.languages,
    stop,
    clock,
    log: run.log,
    append: async (drafts) => {
      const events = drafts.map(({ at, draft }) => ({ at, draft: eventOf(draft) }));
      await store.events.append(subject, events, { isSilent: true });
      for (const { draft } of events) await run.show(draft);
    },
  });
  return (await store.jobs.finish(job.id, started.owner, outcome, clock.now())) ?? job;
}

/** Null when the run was stopped while it waited. */
async function reserve({ provider, spec, stop }: LocalRun): Promise<Reservation | null> {
  try {
    return await provider.reserve(spec.limits, { signal: stop.signal });
  } catch (error) {
    if (stop.request !== null) return null;
    throw error;
  }
}

async function finish(store: Store, job: Job, clock: Clock): Promise<Job> {
  return (await store.jobs.finish(job.id, null, neverRan("user"), clock.now())) ?? job;
}

function newJob(spec: JobSpec, at: number): Job {
  return {
    id: newId(),
    tenant: DEFAULT_TENANT,
    status: "queued",
    language: spec.language,
    limits: spec.limits,
    labels: spec.labels,
    placement: null,
    workerId: null,
    createdAt: at,
    startedAt: null,
    finishedAt: null,
    owner: null,
    outcome: null,
  };
}
