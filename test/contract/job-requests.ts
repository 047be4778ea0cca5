// What every JobStore must do about requests that come again, and about labels. Run by
// job-requests.test.ts against each store.

import { describe, expect, test } from "bun:test";
import type { Job } from "../../src/core/job.ts";
import type { JobQuery, Store } from "../../src/store/contract.ts";
import { failure, NOON, sampleJob, sampleSpec } from "../store/samples.ts";
import type { StoreKind } from "./store-harness.ts";

const DAY_MS = 86_400_000;

/** Registers the suite for one kind of store. */
export function jobRequestsContract(kind: StoreKind): void {
  describe(`requests and labels of ${kind.name}`, () => {
    describeOnce(kind);
    describeLabels(kind);
  });
}

async function once(store: Store, job: Job, request: { key: string; bodyHash?: string }) {
  const { key, bodyHash = "hash" } = request;
  const since = job.createdAt - DAY_MS;
  return await store.jobs.insertOnce(job, sampleSpec({}), { key, bodyHash, since });
}

function describeOnce({ open }: StoreKind): void {
  test("insertOnce() puts one job in for one key of a tenant", async () => {
    await using store = await open();
    const job = sampleJob({ tenant: "a" });
    expect(await store.jobs.earlier("a", { key: "k", since: 0 })).toBeNull();
    expect(await once(store, job, { key: "k" })).toBeNull();
    const again = sampleJob({ tenant: "a", createdAt: NOON + 5 });
    const earlier = { jobId: job.id, bodyHash: "hash" };
    expect(await once(store, again, { key: "k", bodyHash: "other" })).toEqual(earlier);
    expect(await store.jobs.earlier("a", { key: "k", since: NOON })).toEqual(earlier);
    expect(await store.jobs.get(again.id)).toBeNull();
    expect(await store.events.head(`job:${again.id}`)).toBeNull();
    expect(await store.jobs.queuedCount()).toBe(1);
  });

  test("insertOnce() of requests that come together puts in one", async () => {
    await using store = await open();
    const jobs = Array.from({ length: 8 }, () => sampleJob({ tenant: "a" }));
    const answers = await Promise.all(jobs.map((job) => once(store, job, { key: "k" })));
    const winner = jobs[answers.indexOf(null)];
    expect(answers.filter((answer) => answer === null)).toHaveLength(1);
    for (const answer of answers.filter((one) => one !== null)) {
      expect(answer.jobId).toBe(winner?.id ?? "");
    }
    expect(await store.jobs.queuedCount()).toBe(1);
  });

  test("keys are a tenant's own, and told apart to the letter", async () => {
    await using store = await open();
    for (const [tenant, key] of [
      ["a", "k"],
      ["b", "k"],
      ["a", "K"],
      ["a", 'k","'],
      ["a", "%"],
    ]) {
      expect(await once(store, sampleJob({ tenant: tenant ?? "" }), { key: key ?? "" })).toBeNull();
    }
    expect(await store.jobs.queuedCount()).toBe(5);
  });

  test("a key counts until it is too old, and is then free again", async () => {
    await using store = await open();
    const first = sampleJob({ tenant: "a" });
    await once(store, first, { key: "k" });
    const last = sampleJob({ tenant: "a", createdAt: NOON + DAY_MS });
    expect(await once(store, last, { key: "k" })).toMatchObject({ jobId: first.id });
    const late = sampleJob({ tenant: "a", createdAt: NOON + DAY_MS + 1 });
    expect(await once(store, late, { key: "k" })).toBeNull();
    expect(await store.jobs.earlier("a", { key: "k", since: 0 })).toMatchObject({ jobId: late.id });
  });

  test("a job that is refused leaves its key free", async () => {
    await using store = await open();
    const job = sampleJob({ tenant: "a" });
    await store.jobs.insert(job, sampleSpec({}));
    expect(await failure(once(store, job, { key: "k" }))).toMatchObject({ code: "already_exists" });
    expect(await store.jobs.earlier("a", { key: "k", since: 0 })).toBeNull();
  });
}

function describeLabels({ open }: StoreKind): void {
  test("list() finds jobs by a label, in pages, newest first", async () => {
    await using store = await open();
    const ids: string[] = [];
    for (let index = 0; index < 7; index += 1) {
      const labels = index % 2 === 0 ? { team: "x", n: `${index}` } : { team: "y" };
      const job = sampleJob({ tenant: "a", labels, createdAt: NOON + Math.floor(index / 3) });
      await store.jobs.insert(job, sampleSpec({ labels }));
      if (index % 2 === 0) ids.unshift(job.id);
    }
    await store.jobs.insert(sampleJob({ tenant: "b", labels: { team: "x" } }), sampleSpec({}));
    const query: JobQuery = { tenant: "a", limit: 3, label: { name: "team", value: "x" } };
    const first = await store.jobs.list(query);
    const rest = await store.jobs.list({ ...query, cursor: first.nextCursor ?? "" });
    const found = [...first.jobs, ...rest.jobs].map(({ id }) => id);
    expect(found.toSorted()).toEqual(ids.toSorted());
    expect(first.jobs).toHaveLength(3);
    expect(rest.nextCursor).toBeNull();
    expect(
      (await store.jobs.list({ ...query, label: { name: "n", value: "2" } })).jobs,
    ).toHaveLength(1);
  });

  test("list() by label keeps the other filters, and its values are data", async () => {
    await using store = await open();
    const hostile = "x' OR 1=1 --";
    const job = sampleJob({ tenant: "a", language: "node", labels: { "a.b/c": hostile } });
    await store.jobs.insert(job, sampleSpec({}));
    await store.jobs.insert(sampleJob({ tenant: "a", labels: { "a.b/c": "x" } }), sampleSpec({}));
    const list = async (more: Partial<JobQuery>) =>
      (await store.jobs.list({ tenant: "a", limit: 10, ...more })).jobs.map(({ id }) => id);
    const label = { name: "a.b/c", value: hostile };
    expect(await list({ label })).toEqual([job.id]);
    expect(await list({ label, language: "node", status: "queued" })).toEqual([job.id]);
    expect(await list({ label, language: "python" })).toEqual([]);
    expect(await list({ label, status: "failed" })).toEqual([]);
    expect(await list({ label: { name: "toString", value: "" } })).toEqual([]);
    expect(await list({ label: { name: "A.B/C", value: hostile } })).toEqual([]);
  });
}
