// A job service over a store in memory and a fake provider, and how tests ask of it.

import type { EventRow } from "../../src/core/event.ts";
import type { Job, JobSpec } from "../../src/core/job.ts";
import { silentLog } from "../../src/core/log.ts";
import { JobService, type JobServiceOptions } from "../../src/jobs/service.ts";
import { type JobRequest, jobSpec } from "../../src/jobs/spec.ts";
import type { ResultView } from "../../src/jobs/views.ts";
import { Feed } from "../../src/record/feed.ts";
import { memoryArtifacts } from "../../src/store/memory-artifacts.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { ephemeralSigningKey } from "../../src/store/signing-key.ts";
import { type FakeOptions, FakeProvider, fakeLanguages } from "./fake-provider.ts";

export const signingKey = ephemeralSigningKey();

/** A service that has started. */
export async function startService(
  fake: FakeOptions = {},
  options: Partial<JobServiceOptions> & { keepQueued?: boolean } = {},
) {
  const provider = new FakeProvider(fake);
  const { keepQueued = true, ...rest } = options;
  const store = rest.store ?? memoryStore();
  const feed = rest.feed ?? new Feed(store.events);
  const jobs = new JobService({
    store,
    feed,
    provider,
    languages: fakeLanguages,
    artifacts: memoryArtifacts(),
    signingKey,
    instance: "instance-a",
    log: silentLog,
    ...rest,
  });
  const recovered = await jobs.start({ keepQueued });
  return { jobs, provider, store, feed, recovered };
}

/** The spec of a Python job. */
export function pythonSpec(code: string, request: Partial<JobRequest> = {}): JobSpec {
  return jobSpec({ language: "python", code, ...request });
}

/** Resolves when a job has ended; the bound is for a test that is wrong. */
export async function ended(jobs: JobService, job: Job): Promise<Job> {
  return await jobs.wait(job.tenant, job.id, { waitMs: 10_000 });
}

/** Resolves with the first event that matches, of a job that may still run. */
export async function untilEvent(
  jobs: JobService,
  job: Job,
  matches: (row: EventRow) => boolean,
): Promise<EventRow> {
  const stop = new AbortController();
  for await (const page of jobs.subscribe(job, { fromSeq: 1, signal: stop.signal })) {
    for (const { line } of page) {
      const row = JSON.parse(line) as EventRow;
      if (matches(row)) return row;
    }
  }
  throw new Error(`job ${job.id} ended without the event`);
}

/** All events of a job, up to now. */
export async function eventsOf(jobs: JobService, job: Job): Promise<EventRow[]> {
  const replay = JSON.parse(await joined(jobs.replay(job, 1)));
  return replay.events;
}

export async function resultOf(jobs: JobService, job: Job): Promise<ResultView> {
  return JSON.parse(await joined(jobs.result(await ended(jobs, job))));
}

export async function joined(pieces: AsyncIterable<string>): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece;
  return text;
}
