import { expect, test } from "bun:test";
import { statSync } from "node:fs";
import { Feed } from "../../src/record/feed.ts";
import { type FileStore, openStore } from "../../src/store/open.ts";
import { NOON, sampleJob, sampleOutcome, sampleSpec, stdout, TempDir } from "./samples.ts";

const MIB = 1024 * 1024;
const ROW = "x".repeat(60_000);

/** Jobs with a MiB of output each, which ended at NOON. */
async function fill(store: FileStore, jobs: number): Promise<string[]> {
  const ids: string[] = [];
  for (let index = 0; index < jobs; index += 1) {
    const job = sampleJob();
    await store.jobs.insert(job, sampleSpec());
    const started = await store.jobs.start(job.id, "here", NOON);
    await store.events.append(
      `job:${job.id}`,
      Array.from({ length: 17 }, () => stdout(ROW)),
    );
    await store.jobs.finish(job.id, started?.owner ?? null, sampleOutcome(), NOON);
    ids.push(job.id);
  }
  return ids;
}

/** A job with many short lines, which ended at NOON. */
async function fillLines(store: FileStore, appends: number): Promise<string> {
  const job = sampleJob();
  await store.jobs.insert(job, sampleSpec());
  const started = await store.jobs.start(job.id, "here", NOON);
  const drafts = Array.from({ length: 4000 }, () => stdout("x"));
  for (let index = 0; index < appends; index += 1) {
    await store.events.append(`job:${job.id}`, drafts);
  }
  await store.jobs.finish(job.id, started?.owner ?? null, sampleOutcome(), NOON);
  return job.id;
}

test("pruning takes many short steps and gives the space back to the file system", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const store = await openStore({ path });
  await fill(store, 96);
  let steps = 0;
  while (!(await store.prune(NOON + 1)).isDone) {
    steps += 1;
    // A removal that is written in small transactions never needs a large log beside the file.
    expect(statSync(`${path}-wal`).size).toBeLessThan(24 * MIB);
  }
  const openSize = statSync(path).size;
  await store.close();
  expect(steps).toBeGreaterThan(2);
  expect(openSize).toBeLessThan(MIB);
});

test("what an earlier run removed half is removed by the next", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const before = await openStore({ path });
  const id = await fillLines(before, 10);
  const step = await before.prune(NOON + 1);
  await before.close();
  expect(step.isDone).toBe(false);
  expect(step.events).toBeLessThan(40_002);

  const after = await openStore({ path });
  let { events } = step;
  for (;;) {
    const next = await after.prune(NOON + 1);
    events += next.events;
    if (next.isDone) break;
  }
  expect(await after.jobs.get(id)).toBeNull();
  await after.close();
  expect(events).toBe(40_002);
  expect(statSync(path).size).toBeLessThan(MIB);
});

test("a reader of a log that is removed beneath it comes to an end", async () => {
  using folder = new TempDir();
  const store = await openStore({ path: folder.join("cprg.db") });
  const [id] = await fill(store, 1);
  const feed = new Feed(store.events);
  const { signal } = new AbortController();
  const pages = feed.subscribe(`job:${id}`, { fromSeq: 1, signal })[Symbol.asyncIterator]();
  expect((await pages.next()).done).toBe(false);
  while (!(await store.prune(NOON + 1)).isDone) {}
  expect((await pages.next()).done).toBe(true);
  await store.close();
});
