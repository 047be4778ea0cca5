// How every Store removes what ended long ago. Run by pruning.test.ts against each store.

import { describe, expect, test } from "bun:test";
import type { ExecRecord } from "../../src/core/exec.ts";
import type { Job } from "../../src/core/job.ts";
import { verifyExport } from "../../src/core/verify.ts";
import { exportLog } from "../../src/record/export.ts";
import type { Pruned, Store } from "../../src/store/contract.ts";
import { ephemeralSigningKey } from "../../src/store/signing-key.ts";
import {
  allLines,
  failure,
  NOON,
  sampleExec,
  sampleJob,
  sampleOutcome,
  sampleSandbox,
  sampleSpec,
  stdout,
} from "../store/samples.ts";
import type { StoreKind } from "./store-harness.ts";

/** Registers the suite for one kind of store. */
export function pruningContract({ name, open }: StoreKind): void {
  describe(`prune() of ${name}`, () => {
    test("removes terminal jobs that ended before the time, with spec and log, and no others", async () => {
      await using store = await open();
      const old = await endedJob(store, NOON + 10);
      const edge = await endedJob(store, NOON + 20);
      const young = await endedJob(store, NOON + 30);
      const queued = await queuedJob(store);
      const running = await queuedJob(store);
      await store.jobs.start(running.id, "here", NOON);
      const before = await store.jobs.counts();
      expect(await pruneAll(store, NOON + 20)).toEqual({ runs: 1, events: 3 });

      expect(await store.jobs.get(old.id)).toBeNull();
      expect(await store.jobs.spec(old.id)).toBeNull();
      expect(await store.events.head(`job:${old.id}`)).toBeNull();
      expect(await allLines(store.events, `job:${old.id}`)).toEqual([]);
      for (const { id } of [edge, young, queued, running]) {
        expect((await store.jobs.get(id))?.id).toBe(id);
        expect((await allLines(store.events, `job:${id}`)).length).toBeGreaterThan(0);
        expect(await store.jobs.spec(id)).not.toBeNull();
      }
      const page = await store.jobs.list({ tenant: "acme", limit: 50 });
      expect(page.jobs.map(({ id }) => id)).not.toContain(old.id);
      expect(await store.jobs.counts()).toEqual({ ...before, succeeded: before.succeeded - 1 });
    });

    test("removes execs by their own age, and a sandbox when none of its execs is left", async () => {
      await using store = await open();
      const [opened, ended] = [sampleSandbox(), sampleSandbox()];
      for (const sandbox of [opened, ended]) await store.sandboxes.insert(sandbox);
      const old = await endedExec(store, opened.id, NOON + 10);
      const young = await endedExec(store, opened.id, NOON + 30);
      const running = sampleExec(ended.id);
      await store.execs.insert(running);
      await store.sandboxes.end(ended.id, "user", NOON + 5);
      expect(await pruneAll(store, NOON + 20)).toEqual({ runs: 1, events: 2 });
      expect(await store.execs.get(old.id)).toBeNull();
      expect(await store.events.head(`exec:${old.id}`)).toBeNull();
      expect((await allLines(store.events, `exec:${young.id}`)).length).toBe(2);
      expect((await store.sandboxes.get(opened.id))?.id).toBe(opened.id);
      // What may still end keeps its sandbox.
      expect((await store.sandboxes.get(ended.id))?.id).toBe(ended.id);

      await store.execs.finish(running.id, sampleOutcome(), NOON + 25);
      expect(await store.storedBytes("acme")).toBeGreaterThan(0);
      expect(await pruneAll(store, NOON + 40)).toEqual({ runs: 3, events: 3 });
      expect(await store.sandboxes.get(ended.id)).toBeNull();
      expect((await store.sandboxes.get(opened.id))?.id).toBe(opened.id);
      const { limits, labels } = opened;
      const left = Buffer.byteLength(JSON.stringify(limits) + JSON.stringify(labels));
      expect(await store.storedBytes("acme")).toBe(left);
    });

    test("keeps the tenant's chain: what stays verifies, what comes is linked to what is gone", async () => {
      await using store = await open();
      const first = await endedJob(store, NOON + 10);
      const firstHead = await store.events.head(`job:${first.id}`);
      const second = await endedJob(store, NOON + 20);
      await pruneAll(store, NOON + 15);
      const secondHead = await store.events.head(`job:${second.id}`);
      expect(secondHead?.previous).toEqual(firstHead?.hash ?? new Uint8Array());
      await pruneAll(store, NOON + 25);
      const third = await endedJob(store, NOON + 30);
      const thirdHead = await store.events.head(`job:${third.id}`);
      expect(thirdHead?.previous).toEqual(secondHead?.hash ?? new Uint8Array());
      const key = ephemeralSigningKey();
      const log = exportLog({ store, key, subject: `job:${third.id}` });
      expect(await verifyExport(log, { publicKey: key.publicKey })).toMatchObject({ ok: true });
    });

    test("removes much in several steps, between which the store answers", async () => {
      await using store = await open();
      const jobs = await Promise.all(
        Array.from({ length: 12 }, (_, index) => endedJob(store, NOON + index)),
      );
      const steps: Pruned[] = [];
      for (;;) {
        const step = await store.prune(NOON + 1000);
        steps.push(step);
        if (step.isDone) break;
        expect(await store.jobs.queuedCount()).toBe(0);
      }
      expect(steps.reduce((sum, { runs }) => sum + runs, 0)).toBe(jobs.length);
      expect(steps.reduce((sum, { events }) => sum + events, 0)).toBe(jobs.length * 3);
      expect(await store.prune(NOON + 1000)).toEqual({ runs: 0, events: 0, isDone: true });
    });

    test("a log that was removed meanwhile ends an export without a seal", async () => {
      await using store = await open();
      const job = await endedJob(store, NOON + 10, 2000);
      const key = ephemeralSigningKey();
      const log = exportLog({ store, key, subject: `job:${job.id}` });
      await log.next();
      await pruneAll(store, NOON + 20);
      expect((await failure(log.next())).code).toBe("aborted");
    });
  });
}

async function queuedJob(store: Store): Promise<Job> {
  const job = sampleJob();
  await store.jobs.insert(job, sampleSpec());
  return job;
}

/** A job of `rows` + 2 events. */
async function endedJob(store: Store, endedAt: number, rows = 1): Promise<Job> {
  const job = await queuedJob(store);
  const started = await store.jobs.start(job.id, "here", NOON);
  const drafts = Array.from({ length: rows }, () => stdout("x"));
  await store.events.append(`job:${job.id}`, drafts);
  await store.jobs.finish(job.id, started?.owner ?? null, sampleOutcome(), endedAt);
  return job;
}

/** An exec of two events. */
async function endedExec(store: Store, sandboxId: string, endedAt: number): Promise<ExecRecord> {
  const exec = sampleExec(sandboxId);
  await store.execs.insert(exec);
  await store.events.append(`exec:${exec.id}`, [stdout("x")]);
  await store.execs.finish(exec.id, sampleOutcome(), endedAt);
  return exec;
}

async function pruneAll(store: Store, before: number) {
  let runs = 0;
  let events = 0;
  for (;;) {
    const step = await store.prune(before);
    runs += step.runs;
    events += step.events;
    if (step.isDone) return { runs, events };
  }
}
