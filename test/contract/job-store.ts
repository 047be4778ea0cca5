// What every JobStore must do. Run by job-store.test.ts against each store.

import { describe, expect, test } from "bun:test";
import { toHex } from "../../src/core/chain.ts";
import type { Job, JobOwner } from "../../src/core/job.ts";
import type { Outcome } from "../../src/core/outcome.ts";
import { STATUSES } from "../../src/core/reasons.ts";
import type { JobQuery, Store } from "../../src/store/contract.ts";
import { KEPT_CODE_CHARS } from "../../src/store/job-rules.ts";
import {
  allLines,
  failure,
  NOON,
  sampleJob,
  sampleOutcome,
  sampleSpec,
  stdout,
} from "../store/samples.ts";
import type { StoreKind } from "./store-harness.ts";

/** Registers the suite for one kind of store. */
export function jobStoreContract(kind: StoreKind): void {
  describe(`JobStore of ${kind.name}`, () => {
    describeInsert(kind);
    describeList(kind);
    describeQueue(kind);
    describeStart(kind);
    describeFinish(kind);
  });
}

async function insert(store: Store, change: Partial<Job> = {}): Promise<Job> {
  const job = sampleJob(change);
  await store.jobs.insert(job, sampleSpec({ language: job.language }));
  return job;
}

async function startedJob(store: Store, change: Partial<Job> = {}) {
  const { id } = await insert(store, change);
  const job = await store.jobs.start(id, "here", NOON + 1);
  if (job === null) throw new Error("the job did not start");
  return job;
}

async function events(store: Store, id: string) {
  const lines = await allLines(store.events, `job:${id}`);
  return lines.map(({ line }) => JSON.parse(line));
}

function describeInsert({ open }: StoreKind): void {
  test("insert() keeps job and spec, and records queued", async () => {
    await using store = await open();
    const labels = JSON.parse('{"__proto__":"x","":"empty","\\ud800":"alone","é":"🦊"}');
    const job = sampleJob({ labels });
    const spec = sampleSpec({ labels, code: "a\0b", env: { A: "'" } });
    await store.jobs.insert(job, spec);
    expect(await store.jobs.get(job.id)).toEqual(job);
    expect(await store.jobs.spec(job.id)).toEqual(spec);
    expect(JSON.stringify((await store.jobs.get(job.id))?.labels)).toBe(JSON.stringify(labels));
    expect(await events(store, job.id)).toEqual([
      {
        seq: 1,
        at: "2026-01-01T00:00:00.000Z",
        kind: "queued",
        data: { language: "python", limits: { ...job.limits } },
        hash: expect.stringMatching(/^[0-9a-f]{64}$/),
      },
    ]);
  });

  test("insert() refuses an id that is taken and changes nothing", async () => {
    await using store = await open();
    const job = await insert(store);
    const error = await failure(store.jobs.insert({ ...job, tenant: "other" }, sampleSpec()));
    expect(error.code).toBe("already_exists");
    expect(await store.jobs.get(job.id)).toEqual(job);
    expect(await events(store, job.id)).toHaveLength(1);
    expect(await store.jobs.queuedCount()).toBe(1);
  });

  test("insert() refuses a job that does not wait", async () => {
    await using store = await open();
    const job = sampleJob({ status: "running" });
    expect((await failure(store.jobs.insert(job, sampleSpec()))).code).toBe("failed_precondition");
    expect(await store.jobs.get(job.id)).toBeNull();
    expect(await store.events.head(`job:${job.id}`)).toBeNull();
  });

  test("get() and spec() give null for what is not there", async () => {
    await using store = await open();
    await insert(store);
    for (const id of ["", "nobody", "\0", "' OR 1=1 --", "x".repeat(10_000)]) {
      expect(await store.jobs.get(id)).toBeNull();
      expect(await store.jobs.spec(id)).toBeNull();
    }
  });
}

function describeList({ open }: StoreKind): void {
  async function pages(store: Store, query: JobQuery): Promise<string[][]> {
    const found: string[][] = [];
    let cursor: string | null = null;
    do {
      const page = await store.jobs.list(cursor === null ? query : { ...query, cursor });
      found.push(page.jobs.map(({ id }) => id));
      cursor = page.nextCursor;
    } while (cursor !== null);
    return found;
  }

  test("list() pages newest first, without gap or duplicate", async () => {
    await using store = await open();
    const jobs: Job[] = [];
    // Three share one time: ids decide.
    for (const offset of [5, 1, 3, 3, 3])
      jobs.push(await insert(store, { createdAt: NOON + offset }));
    const newest = jobs
      .toSorted((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1))
      .map(({ id }) => id);
    for (const limit of [1, 2, 5, 500]) {
      const found = await pages(store, { tenant: "acme", limit });
      expect(found.flat()).toEqual(newest);
      expect(found).toHaveLength(Math.ceil(5 / limit));
    }
  });

  test("list() goes on from its cursor while jobs are added", async () => {
    await using store = await open();
    const old = await insert(store, { createdAt: NOON });
    const middle = await insert(store, { createdAt: NOON + 1 });
    const page = await store.jobs.list({ tenant: "acme", limit: 1 });
    await insert(store, { createdAt: NOON + 2 });
    const rest = await store.jobs.list({ tenant: "acme", limit: 5, cursor: page.nextCursor ?? "" });
    expect(page.jobs.map(({ id }) => id)).toEqual([middle.id]);
    expect(rest.jobs.map(({ id }) => id)).toEqual([old.id]);
  });

  test("list() keeps tenants apart and filters by status and language", async () => {
    await using store = await open();
    const python = await startedJob(store, { createdAt: NOON });
    const node = await insert(store, { createdAt: NOON + 1, language: "node" });
    await insert(store, { tenant: "other" });
    const ids = async (query: Partial<JobQuery>) => {
      const { jobs } = await store.jobs.list({ tenant: "acme", limit: 10, ...query });
      return jobs.map(({ id }) => id);
    };
    expect(await ids({})).toEqual([node.id, python.id]);
    expect(await ids({ status: "running" })).toEqual([python.id]);
    expect(await ids({ status: "queued" })).toEqual([node.id]);
    expect(await ids({ status: "failed" })).toEqual([]);
    expect(await ids({ language: "node" })).toEqual([node.id]);
    expect(await ids({ language: "node", status: "running" })).toEqual([]);
    expect(await ids({ language: "python", status: "running" })).toEqual([python.id]);
    expect(await ids({ tenant: "nobody" })).toEqual([]);
  });

  test("list() refuses cursors that no list gave, and limits that are none", async () => {
    await using store = await open();
    await insert(store);
    const made = (text: string) => Buffer.from(text).toString("base64url");
    const cursors = [
      "",
      "x",
      "!",
      "null",
      made("1"),
      made("x:y"),
      made("-1:a"),
      made("01:a"),
      made("1:"),
    ];
    for (const cursor of [...cursors, `${made("1:a")}=`, "A".repeat(100_000)]) {
      const error = await failure(store.jobs.list({ tenant: "acme", limit: 10, cursor }));
      expect([error.code, error.field]).toEqual(["invalid_argument", "cursor"]);
    }
    for (const limit of [0, -1, 1.5, Number.NaN, 501]) {
      const error = await failure(store.jobs.list({ tenant: "acme", limit }));
      expect([error.code, error.field]).toEqual(["invalid_argument", "limit"]);
    }
  });
}

function describeQueue({ open }: StoreKind): void {
  test("next() gives the oldest of a tenant that is not busy, and changes nothing", async () => {
    await using store = await open();
    expect(await store.jobs.next([])).toBeNull();
    const late = await insert(store, { tenant: "b", createdAt: NOON + 3 });
    for (const offset of [2, 1]) await insert(store, { tenant: "a", createdAt: NOON + offset });
    const first = await insert(store, { tenant: "a", createdAt: NOON });
    const odd = await insert(store, { tenant: 'c"]', createdAt: NOON + 4 });
    expect(await store.jobs.next([])).toEqual(first);
    expect(await store.jobs.next([])).toEqual(first);
    expect(await store.jobs.next(["a"])).toEqual(late);
    expect(await store.jobs.next(["a", "b"])).toEqual(odd);
    expect(await store.jobs.next(["a", "b", 'c"]'])).toBeNull();
    expect((await store.jobs.get(first.id))?.status).toBe("queued");
  });

  test("placed() gives the jobs for workers, oldest first, and next() none of them", async () => {
    await using store = await open();
    const placement = { labels: { gpu: "1" } };
    expect(await store.jobs.placed({ limit: 5 })).toEqual([]);
    const jobs: Job[] = [];
    for (const offset of [2, 0, 1]) {
      jobs.push(await insert(store, { placement, createdAt: NOON + offset }));
    }
    const [last, first, second] = jobs;
    const here = await insert(store, { createdAt: NOON + 9 });
    expect(await store.jobs.next([])).toEqual(here);
    const two = await store.jobs.placed({ limit: 2 });
    expect(two).toEqual([first, second] as never);
    const rest = await store.jobs.placed({ limit: 2, after: two[1] as Job });
    expect(rest).toEqual([last] as never);
    expect(await store.jobs.placed({ limit: 2, after: rest[0] as Job })).toEqual([]);
    expect(await store.jobs.queuedCount()).toBe(4);
    const id = first?.id ?? "";
    const started = await store.jobs.start(id, "here", NOON + 9, "worker-1");
    expect(started).toMatchObject({ status: "running", workerId: "worker-1", placement });
    expect(await store.jobs.get(id)).toMatchObject({ workerId: "worker-1", placement });
    await store.jobs.finish(second?.id ?? "", null, sampleOutcome({ reason: "user" }), NOON);
    expect((await store.jobs.placed({ limit: 9 })).map((job) => job.id)).toEqual([last?.id ?? ""]);
    await store.jobs.finish(id, started?.owner ?? null, sampleOutcome(), NOON + 10);
    expect(await store.jobs.get(id)).toMatchObject({ status: "succeeded", workerId: "worker-1" });
    const local = await store.jobs.start(here.id, "here", NOON + 9);
    expect(local).toMatchObject({ workerId: null, placement: null });
  });

  test("queuedCount() and counts() follow every change", async () => {
    await using store = await open();
    const none = Object.fromEntries(STATUSES.map((status) => [status, 0]));
    expect(await store.jobs.counts()).toEqual(none as never);
    const first = await startedJob(store);
    await insert(store);
    await insert(store, { tenant: "other" });
    expect(await store.jobs.queuedCount()).toBe(2);
    expect(await store.jobs.queuedCount("acme")).toBe(1);
    expect(await store.jobs.queuedCount("nobody")).toBe(0);
    expect(await store.jobs.counts()).toEqual({ ...none, queued: 2, running: 1 } as never);
    await store.jobs.finish(first.id, first.owner, sampleOutcome(), NOON + 2);
    expect(await store.jobs.counts()).toEqual({ ...none, queued: 2, succeeded: 1 } as never);
  });

  test("orphans() are what runs under an instance that is not alive", async () => {
    await using store = await open();
    const first = await startedJob(store, { createdAt: NOON });
    const { id } = await insert(store, { createdAt: NOON + 1 });
    await store.jobs.start(id, "there", NOON + 2);
    await insert(store);
    const done = await startedJob(store);
    await store.jobs.finish(done.id, done.owner, sampleOutcome(), NOON);
    const ids = async (living: string[]) => (await store.jobs.orphans(living)).map((job) => job.id);
    expect(await ids([])).toEqual([first.id, id]);
    expect(await ids(["here"])).toEqual([id]);
    expect(await ids(["there", "else"])).toEqual([first.id]);
    expect(await ids(["here", "there"])).toEqual([]);
  });
}

function describeStart({ open }: StoreKind): void {
  test("start() takes a queued job once, however many try", async () => {
    await using store = await open();
    const job = await insert(store);
    const tries = Array.from({ length: 8 }, (_, index) =>
      store.jobs.start(job.id, `instance ${index}`, NOON + index),
    );
    const won = (await Promise.all(tries)).filter((result) => result !== null);
    expect(won).toHaveLength(1);
    expect(won[0]).toMatchObject({ id: job.id, status: "running", owner: { epoch: 1 } });
    expect(await store.jobs.get(job.id)).toEqual(won[0] ?? null);
    expect(await store.jobs.start(job.id, "late", NOON)).toBeNull();
    expect(await store.jobs.next([])).toBeNull();
  });

  test("start() refuses what is not there or has ended", async () => {
    await using store = await open();
    expect(await store.jobs.start("nobody", "here", NOON)).toBeNull();
    const job = await insert(store);
    await store.jobs.finish(job.id, null, sampleOutcome({ reason: "user" }), NOON);
    expect(await store.jobs.start(job.id, "here", NOON)).toBeNull();
    expect((await store.jobs.get(job.id))?.status).toBe("cancelled");
  });
}

function describeFinish({ open }: StoreKind): void {
  const error = { message: "Cannot mount", step: "mount", hint: "Load overlay" };
  const cases: readonly [Partial<Outcome>, Record<string, unknown>][] = [
    [{}, { status: "succeeded", exit_code: 0, reason: "exit" }],
    [{ exitCode: 3 }, { status: "failed", exit_code: 3, reason: "exit" }],
    [
      { exitCode: null, signal: "SIGKILL", reason: "oom", killed: 2 },
      { status: "oom_killed", exit_code: null, signal: "SIGKILL", reason: "oom", killed: 2 },
    ],
    [
      { exitCode: null, reason: "setup_failed", usage: null, error },
      { status: "error", exit_code: null, reason: "setup_failed", usage: null, error },
    ],
  ];

  test.each(cases)(
    "finish() with %j keeps the outcome and records finished",
    async (change, event) => {
      await using store = await open();
      const job = await startedJob(store);
      const outcome = sampleOutcome(change);
      await store.events.append(`job:${job.id}`, [stdout("hi")]);
      const ended = await store.jobs.finish(job.id, job.owner, outcome, NOON + 9);
      const wanted = { ...job, status: event["status"] as never, finishedAt: NOON + 9, outcome };
      expect(ended).toEqual(wanted);
      expect(await store.jobs.get(job.id)).toEqual(wanted);
      const last = (await events(store, job.id)).at(-1);
      expect(last).toMatchObject({ seq: 3, kind: "finished", at: "2026-01-01T00:00:00.009Z" });
      const { usage, durationMs } = outcome;
      const common = { signal: null, killed: 0, usage: usage as never, duration_ms: durationMs };
      expect(last.data).toEqual({ ...common, ...event });
      expect(await store.events.head(`job:${job.id}`)).toMatchObject({ count: 3, complete: true });
      const late = await failure(store.events.append(`job:${job.id}`, [stdout("late")]));
      expect(late.code).toBe("failed_precondition");
    },
  );

  test("finish() keeps the code of a job up to a bound, and neither files nor input", async () => {
    await using store = await open();
    const job = sampleJob();
    const before = sampleSpec({
      code: "c".repeat(KEPT_CODE_CHARS + 1),
      stdinBase64: "YQ==".repeat(1000),
      files: [{ path: "big", base64: "YQ==".repeat(1000), mode: 0o644 }],
    });
    await store.jobs.insert(job, before);
    const started = await store.jobs.start(job.id, "here", NOON);
    expect(await store.jobs.spec(job.id)).toEqual(before);
    await store.jobs.finish(job.id, started?.owner ?? null, sampleOutcome(), NOON);
    const code = "c".repeat(KEPT_CODE_CHARS);
    expect(await store.jobs.spec(job.id)).toEqual({
      ...before,
      code,
      files: [],
      stdinBase64: null,
    });
  });

  test("finish() changes nothing for another owner or epoch, or a second time", async () => {
    await using store = await open();
    const job = await startedJob(store);
    const wrong: (JobOwner | null)[] = [
      null,
      { ...job.owner, instance: "there" },
      { ...job.owner, epoch: 2 },
      { ...job.owner, epoch: 0 },
    ];
    for (const owner of wrong) {
      expect(await store.jobs.finish(job.id, owner, sampleOutcome(), NOON)).toBeNull();
    }
    expect(await store.jobs.finish("nobody", job.owner, sampleOutcome(), NOON)).toBeNull();
    expect(await store.jobs.get(job.id)).toEqual(job);
    expect(await events(store, job.id)).toHaveLength(1);
    const ended = await store.jobs.finish(job.id, job.owner, sampleOutcome(), NOON);
    expect(
      await store.jobs.finish(job.id, job.owner, sampleOutcome({ exitCode: 1 }), NOON),
    ).toBeNull();
    expect(await store.jobs.get(job.id)).toEqual(ended);
    expect(await events(store, job.id)).toHaveLength(2);
  });

  test("finish() without an owner ends what waits; one of many ends it", async () => {
    await using store = await open();
    const job = await insert(store);
    const owner = { instance: "here", epoch: 1 };
    expect(await store.jobs.finish(job.id, owner, sampleOutcome(), NOON)).toBeNull();
    const outcome = sampleOutcome({ reason: "user", exitCode: null });
    const tries = Array.from({ length: 8 }, () => store.jobs.finish(job.id, null, outcome, NOON));
    const won = (await Promise.all(tries)).filter((result) => result !== null);
    expect(won).toHaveLength(1);
    expect(won[0]).toMatchObject({ status: "cancelled", startedAt: null, owner: null });
    expect((await events(store, job.id)).map(({ kind }) => kind)).toEqual(["queued", "finished"]);
  });

  test("finish() chains the heads of a tenant's jobs", async () => {
    await using store = await open();
    const jobs = [await startedJob(store), await startedJob(store)];
    const other = await startedJob(store, { tenant: "other" });
    const headOf = async (id: string) => {
      const head = await store.events.head(`job:${id}`);
      return { hash: toHex(head?.hash ?? new Uint8Array()), previous: head?.previous };
    };
    expect((await headOf(jobs[0]?.id ?? "")).previous).toBeNull();
    let expected = "0".repeat(64);
    for (const job of jobs) {
      await store.jobs.finish(job.id, job.owner, sampleOutcome(), NOON);
      const { hash, previous } = await headOf(job.id);
      expect(toHex(previous ?? new Uint8Array())).toBe(expected);
      expected = hash;
    }
    await store.jobs.finish(other.id, other.owner, sampleOutcome(), NOON);
    expect(toHex((await headOf(other.id)).previous ?? new Uint8Array())).toBe("0".repeat(64));
  });
}
