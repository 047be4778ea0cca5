import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CprgError } from "../../src/core/errors.ts";
import type { Job } from "../../src/core/job.ts";
import { type Log, silentLog } from "../../src/core/log.ts";
import { Feed } from "../../src/record/feed.ts";
import type { Store } from "../../src/store/contract.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { openStore } from "../../src/store/open.ts";
import { ended, eventsOf, pythonSpec, resultOf, startService, untilEvent } from "./fixture.ts";

/** A program that runs until it is killed. */
const untilKilled = { run: () => new Promise<number>(() => undefined) };

/** The error that a call throws. */
async function thrownBy(call: Promise<unknown>): Promise<CprgError> {
  const error = await call.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!CprgError.is(error)) throw new Error(`no CprgError but ${error}`);
  return error;
}

/** Resolves when a condition holds; looks again whenever the loop turned. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}

/** A log that keeps its messages. */
function keptLog(): Log & { readonly messages: string[] } {
  const messages: string[] = [];
  const keep = (message: string) => messages.push(message);
  return { ...silentLog, warn: keep, error: keep, messages };
}

describe("JobService.submit()", () => {
  test("runs a job to its result", async () => {
    const { jobs, provider } = await startService();
    const job = await jobs.submit("a", pythonSpec("print(6*7)"));
    const done = await ended(jobs, job);
    expect(done).toMatchObject({ status: "succeeded", outcome: { exitCode: 0, reason: "exit" } });
    const kinds = (await eventsOf(jobs, job)).map(({ kind }) => kind);
    expect(kinds).toEqual(["queued", "started", "stdout", "finished"]);
    expect(await resultOf(jobs, job)).toMatchObject({ stdout: "print(6*7)", truncated: false });
    expect(provider).toMatchObject({ open_: 0, reserved: 0 });
  });

  test("releases the sandbox before the end is written", async () => {
    const openAtEnd: number[] = [];
    const store = memoryStore();
    const { jobs, provider } = await startService({}, { store });
    const finish = store.jobs.finish.bind(store.jobs);
    store.jobs.finish = (...args) => {
      openAtEnd.push(provider.open_);
      return finish(...args);
    };
    await ended(jobs, await jobs.submit("a", pythonSpec("1")));
    expect(openAtEnd).toEqual([0]);
  });

  test("commits `running` before anything is opened", async () => {
    const statuses: (string | undefined)[] = [];
    const { jobs, provider, store } = await startService();
    const open = provider.open.bind(provider);
    const submitted = Promise.withResolvers<Job>();
    provider.open = async (...args) => {
      const job = await submitted.promise;
      statuses.push((await store.jobs.get(job.id))?.status);
      return await open(...args);
    };
    const job = await jobs.submit("a", pythonSpec("1"));
    submitted.resolve(job);
    await ended(jobs, job);
    expect(statuses).toEqual(["running"]);
  });
});

describe("the queue", () => {
  test("keeps slots, and the concurrency of a tenant", async () => {
    const { jobs, provider } = await startService(untilKilled, { slots: 3, tenantConcurrency: 2 });
    const ofA: Job[] = [];
    for (const code of ["1", "2", "3", "4"]) ofA.push(await jobs.submit("a", pythonSpec(code)));
    const ofB = [await jobs.submit("b", pythonSpec("5")), await jobs.submit("b", pythonSpec("6"))];
    await until(() => provider.open_ === 3);
    const statuses = async (list: readonly Job[]) =>
      await Promise.all(list.map(async ({ tenant, id }) => (await jobs.get(tenant, id)).status));
    expect(await statuses(ofA)).toEqual(["running", "running", "queued", "queued"]);
    expect(await statuses(ofB)).toEqual(["running", "queued"]);
    const [first] = ofA;
    if (first !== undefined) await jobs.cancel("a", first.id, { waitMs: 10_000 });
    await until(() => provider.open_ === 3);
    expect(await statuses(ofA)).toEqual(["cancelled", "running", "running", "queued"]);
    await jobs.stop(0);
    expect(provider.peak).toBe(3);
  });

  test("runs 200 jobs, each once, oldest first within a tenant", async () => {
    const order: string[] = [];
    const { jobs, provider } = await startService(
      {
        run: async ({ code }) => {
          order.push(code);
          return 0;
        },
      },
      { slots: 8, tenantConcurrency: 1 },
    );
    const submitted: Job[] = [];
    for (let index = 0; index < 200; index++) {
      submitted.push(await jobs.submit(`t${index % 4}`, pythonSpec(`${index}`)));
    }
    for (const job of submitted) expect((await ended(jobs, job)).status).toBe("succeeded");
    expect(order).toHaveLength(200);
    for (const tenant of [0, 1, 2, 3]) {
      const own = order.map(Number).filter((index) => index % 4 === tenant);
      expect(own).toEqual([...own].sort((a, b) => a - b));
    }
    expect(provider).toMatchObject({ open_: 0, reserved: 0 });
    expect(provider.peak).toBeLessThanOrEqual(4);
  });

  test("a job that waits for admission holds back its tenant only", async () => {
    const { jobs, provider } = await startService({ ...untilKilled, capacity: 1 });
    const first = await jobs.submit("a", pythonSpec("1"));
    await until(() => provider.open_ === 1);
    const second = await jobs.submit("a", pythonSpec("2"));
    const third = await jobs.submit("b", pythonSpec("3"));
    const waiting = async (job: Job) => jobs.view(await jobs.get(job.tenant, job.id)).waiting?.code;
    await until(() => provider.waiting === 2);
    expect([await waiting(second), await waiting(third)]).toEqual(["ADMISSION", "ADMISSION"]);
    await jobs.cancel("a", second.id, { waitMs: 0 });
    await jobs.cancel("a", first.id, { waitMs: 10_000 });
    await until(() => provider.open_ === 1);
    expect((await jobs.get("b", third.id)).status).toBe("running");
    expect((await jobs.get("a", second.id)).status).toBe("cancelled");
    await jobs.stop(0);
    expect(provider).toMatchObject({ open_: 0, reserved: 0 });
  });

  test("gives the place back when no sandbox can be opened in it", async () => {
    const openError = new CprgError("internal", "Cannot mount", { hint: "Mend it" });
    const { jobs, provider } = await startService({ openError });
    const done = await ended(jobs, await jobs.submit("a", pythonSpec("1")));
    expect(done.outcome).toMatchObject({ reason: "setup_failed", error: { hint: "Mend it" } });
    expect(provider.reserved).toBe(0);
  });

  test("says what a sandbox left behind without changing how its program ended", async () => {
    const log = keptLog();
    const releaseError = new CprgError("internal", "Cannot remove sandbox: busy");
    const { jobs } = await startService({ releaseError }, { log });
    const done = await ended(jobs, await jobs.submit("a", pythonSpec("1")));
    expect(done).toMatchObject({
      status: "succeeded",
      outcome: { error: { message: "Cannot remove sandbox: busy" } },
    });
    expect(log.messages).toEqual(["sandbox not removed"]);
  });

  test("fails a job whose limits can never fit, with the fix", async () => {
    const reserveError = new CprgError("failed_precondition", "Cannot reserve 4096 MiB: too much", {
      hint: "Lower limits.mem_mb",
    });
    const { jobs } = await startService({ reserveError });
    const done = await ended(jobs, await jobs.submit("a", pythonSpec("1")));
    expect(done).toMatchObject({
      status: "error",
      startedAt: null,
      outcome: { reason: "setup_failed", error: { hint: "Lower limits.mem_mb" } },
    });
  });

  test("does not ask a store that fails without a pause, and goes on when it is back", async () => {
    const log = keptLog();
    const store = memoryStore();
    const start = store.jobs.start.bind(store.jobs);
    let isBroken = true;
    store.jobs.start = (...args) => (isBroken ? Promise.reject(new Error("disk")) : start(...args));
    const { jobs, provider } = await startService({}, { store, log });
    const job = await jobs.submit("a", pythonSpec("1"));
    for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve));
    isBroken = false;
    expect((await ended(jobs, job)).status).toBe("succeeded");
    expect(log.messages).toEqual(["job not started"]);
    expect(provider).toMatchObject({ open_: 0, reserved: 0 });
  });

  test("tries again to store an end until it is stored or the server stops", async () => {
    const log = keptLog();
    const store = memoryStore();
    const finish = store.jobs.finish.bind(store.jobs);
    let failures = 2;
    let calls = 0;
    store.jobs.finish = (...args) => {
      calls += 1;
      return failures-- > 0 ? Promise.reject(new Error("disk full")) : finish(...args);
    };
    const { jobs } = await startService({}, { store, log, finishRetryMs: [0, 0, 0] });
    expect(await ended(jobs, await jobs.submit("a", pythonSpec("1")))).toMatchObject({
      status: "succeeded",
    });
    expect(calls).toBe(3);

    failures = 100;
    expect(await ended(jobs, await jobs.submit("a", pythonSpec("2")))).toMatchObject({
      status: "succeeded",
    });
    expect(failures).toBe(-1);
    expect(log.messages).not.toContain("job end not stored, given up");

    failures = Number.POSITIVE_INFINITY;
    const lost = await jobs.submit("a", pythonSpec("3"));
    calls = 0;
    await until(() => calls > 20);
    await jobs.stop(0);
    expect(log.messages.at(-1)).toBe("job end not stored, given up");
    failures = 0;
    const next = await startService({}, { store, instance: "instance-b" });
    expect(next.recovered).toEqual({ interrupted: 1, failed: 0 });
    expect((await jobs.get("a", lost.id)).outcome?.reason).toBe("interrupted");
  });
});

test("a job whose end finds no store gives up at once, so that the server can stop", async () => {
  const store = memoryStore();
  store.jobs.finish = () =>
    Promise.reject(new CprgError("unavailable", "Cannot use the store", { reason: "STORE_DIED" }));
  const log = keptLog();
  const { jobs } = await startService({}, { store, log, finishRetryMs: [3_600_000] });
  await jobs.submit("a", pythonSpec("1"));
  await until(() => log.messages.length > 0);
  expect(log.messages).toEqual(["job end not stored, given up"]);
  await jobs.stop(0);
});

test("a job waits while descriptors are short, says so, and runs when they are not", async () => {
  let free = 31;
  const { jobs, provider } = await startService({}, { freeDescriptors: () => free });
  const job = await jobs.submit("a", pythonSpec("1"));
  await until(() => jobs.view(job).waiting !== undefined);
  expect(jobs.view(job).waiting?.code).toBe("DESCRIPTORS");
  expect(provider.peak).toBe(0);
  free = 32;
  expect((await ended(jobs, job)).status).toBe("succeeded");
});

describe("JobService.cancel()", () => {
  test("refuses a second cancel, and another tenant", async () => {
    const { jobs, provider } = await startService(untilKilled);
    const job = await jobs.submit("a", pythonSpec("1", { killGraceSeconds: 0 }));
    await until(() => provider.open_ === 1);
    expect((await thrownBy(jobs.cancel("b", job.id, { waitMs: 0 }))).code).toBe("not_found");
    const both = await Promise.all([
      jobs.cancel("a", job.id, { waitMs: 10_000 }),
      jobs.cancel("a", job.id, { waitMs: 10_000 }),
    ]);
    expect(both.map(({ status }) => status)).toEqual(["cancelled", "cancelled"]);
    expect((await thrownBy(jobs.cancel("a", job.id, { waitMs: 0 }))).code).toBe("aborted");
    expect((await eventsOf(jobs, job)).at(-1)?.data).toMatchObject({ reason: "user" });
  });

  test("a program that ends by itself first keeps its own end", async () => {
    const { jobs, provider } = await startService({
      run: async ({ killed }) => {
        await killed;
        return 7;
      },
      ignoresKill: true,
    });
    const job = await jobs.submit("a", pythonSpec("1"));
    await until(() => provider.open_ === 1);
    const done = await jobs.cancel("a", job.id, { waitMs: 10_000 });
    expect(done).toMatchObject({ status: "failed", outcome: { exitCode: 7, reason: "exit" } });
  });

  test("between submit and start, at any point, ends the job once", async () => {
    for (let turns = 0; turns < 12; turns++) {
      const { jobs, provider } = await startService(untilKilled);
      const job = await jobs.submit("a", pythonSpec("1"));
      for (let turn = 0; turn < turns; turn++) await Promise.resolve();
      const done = await jobs.cancel("a", job.id, { waitMs: 10_000 });
      expect([turns, done.status]).toEqual([turns, "cancelled"]);
      const kinds = (await eventsOf(jobs, job)).map(({ kind }) => kind);
      expect(kinds.filter((kind) => kind === "finished")).toHaveLength(1);
      await jobs.stop(0);
      expect(provider).toMatchObject({ open_: 0, reserved: 0 });
    }
  });
});

describe("JobService.stop()", () => {
  test("takes no more, gives running jobs their grace, keeps queued ones", async () => {
    const { jobs, provider, store } = await startService(untilKilled, { slots: 1 });
    const running = await jobs.submit("a", pythonSpec("1"));
    await until(() => provider.open_ === 1);
    const queued = await jobs.submit("b", pythonSpec("2"));
    const waiter = ended(jobs, running);
    await jobs.stop(1234);
    expect(provider.kills).toEqual([{ reason: "shutdown", graceMs: 1234 }]);
    expect(await waiter).toMatchObject({ status: "error", outcome: { reason: "shutdown" } });
    expect((await jobs.get("b", queued.id)).status).toBe("queued");
    expect((await thrownBy(jobs.submit("a", pythonSpec("3")))).reason).toBe("STOPPING");
    const next = await startService({}, { store, instance: "instance-b" });
    expect((await ended(next.jobs, queued)).status).toBe("succeeded");
  });

  test("leaves a job queued that has its place but has not started", async () => {
    const { jobs, provider } = await startService();
    const reserve = provider.reserve.bind(provider);
    const stopped = Promise.withResolvers<void>();
    provider.reserve = async (...args) => {
      const reservation = await reserve(...args);
      stopped.resolve(jobs.stop(0));
      return reservation;
    };
    const job = await jobs.submit("a", pythonSpec("1"));
    await stopped.promise;
    expect((await jobs.get("a", job.id)).status).toBe("queued");
    expect(provider).toMatchObject({ peak: 0, reserved: 0 });
  });
});

/** Stores that a second server can open after the first has died. */
const stores = {
  memory: async () => {
    const store = memoryStore();
    return { store, reopen: async () => store, [Symbol.asyncDispose]: async () => undefined };
  },
  sqlite: async () => {
    const directory = mkdtempSync(join(tmpdir(), "cprg-service-"));
    const path = join(directory, "cprg.db");
    let store = await openStore({ path });
    return {
      store,
      reopen: async () => {
        await store.close();
        store = await openStore({ path });
        return store;
      },
      [Symbol.asyncDispose]: async () => {
        await store.close();
        rmSync(directory, { recursive: true });
      },
    };
  },
};

describe.each(["memory", "sqlite"] as const)("JobService.start() on a %s store", (kind) => {
  /** What a dead server leaves: one job running, two queued. */
  async function leftBehind(store: Store) {
    const { jobs, provider } = await startService(untilKilled, { store, slots: 1 });
    const running = await jobs.submit("a", pythonSpec("1"));
    await until(() => provider.open_ === 1);
    const queued = [
      await jobs.submit("a", pythonSpec("2")),
      await jobs.submit("b", pythonSpec("3")),
    ];
    return { running, queued };
  }

  test("ends what was running as interrupted, and runs what was queued once", async () => {
    await using place = await stores[kind]();
    const { running, queued } = await leftBehind(place.store);
    const store = await place.reopen();
    const runs: string[] = [];
    const { jobs, recovered } = await startService(
      {
        run: async ({ code }) => {
          runs.push(code);
          return 0;
        },
      },
      { store, instance: "instance-b" },
    );
    expect(recovered).toEqual({ interrupted: 1, failed: 0 });
    expect(await ended(jobs, running)).toMatchObject({
      status: "error",
      outcome: { reason: "interrupted" },
    });
    for (const job of queued) expect((await ended(jobs, job)).status).toBe("succeeded");
    expect(runs).toEqual(["2", "3"]);
    expect((await eventsOf(jobs, running)).at(-1)).toMatchObject({
      kind: "finished",
      data: { reason: "interrupted", error: { message: expect.any(String) } },
    });
  });

  test("does not count the time of no server as a job's", async () => {
    await using place = await stores[kind]();
    const clock = { now: () => nowMs, monotonicMs: () => nowMs };
    let nowMs = 1_767_225_600_000;
    const { jobs, provider } = await startService(
      {
        run: async ({ out }) => {
          nowMs += 700;
          await out("one row\n");
          return await new Promise<number>(() => undefined);
        },
      },
      { store: place.store, clock },
    );
    const job = await jobs.submit("a", pythonSpec("1"));
    await untilEvent(jobs, job, ({ kind: of }) => of === "stdout");
    expect(provider.open_).toBe(1);
    nowMs += 3_600_000;
    const store = await place.reopen();
    const next = await startService({}, { store, instance: "instance-b", clock });
    expect((await ended(next.jobs, job)).outcome).toMatchObject({
      reason: "interrupted",
      durationMs: 700,
    });
  });

  test("fails what was queued when told not to run it", async () => {
    await using place = await stores[kind]();
    const { queued } = await leftBehind(place.store);
    const store = await place.reopen();
    const { jobs, provider, recovered } = await startService(
      {},
      { store, instance: "instance-b", keepQueued: false },
    );
    expect(recovered).toEqual({ interrupted: 1, failed: 2 });
    for (const job of queued) {
      expect((await jobs.get(job.tenant, job.id)).outcome?.reason).toBe("interrupted");
    }
    expect(provider.peak).toBe(0);
  });

  test("a late end of the dead instance changes nothing", async () => {
    await using place = await stores[kind]();
    const { store } = place;
    const end = Promise.withResolvers<number>();
    const log = keptLog();
    const old = await startService({ run: () => end.promise }, { store, log });
    const job = await old.jobs.submit("a", pythonSpec("1"));
    await until(() => old.provider.open_ === 1);
    const { jobs } = await startService({}, { store, instance: "instance-b" });
    const before = await eventsOf(jobs, job);
    end.resolve(0);
    await until(() => log.messages.length > 0);
    expect(log.messages).toEqual(["job end refused: it had ended or has another owner"]);
    expect(await eventsOf(jobs, job)).toEqual(before);
  });
});

describe("a job whose events cannot be stored", () => {
  test("is killed, and is disk_full even if it ended well", async () => {
    const store = memoryStore();
    const feed = new Feed(store.events);
    const full = new CprgError("resource_exhausted", "Cannot store events: the disk is full", {
      reason: "DISK_FULL",
    });
    const append = feed.append.bind(feed);
    feed.append = (subject, drafts) =>
      drafts.some(({ draft }) => draft.kind === "stdout")
        ? Promise.reject(full)
        : append(subject, drafts);
    const { jobs, provider } = await startService(
      {
        run: async ({ out, killed }) => {
          await out("x".repeat(100_000));
          await killed;
          for (let count = 0; count < 100; count++) await out("dropped");
          return 0;
        },
        ignoresKill: true,
      },
      { store, feed },
    );
    const done = await ended(jobs, await jobs.submit("a", pythonSpec("1")));
    expect(done).toMatchObject({
      status: "error",
      outcome: { reason: "disk_full", exitCode: 0, error: { message: full.message } },
    });
    expect(provider.kills).toHaveLength(1);
    expect(provider).toMatchObject({ open_: 0, reserved: 0 });
  });
});

describe("JobService.subscribe()", () => {
  test("shows a prompt without newline while the program waits", async () => {
    const go = Promise.withResolvers<void>();
    const { jobs } = await startService({
      run: async ({ out }) => {
        await out("name? ");
        await go.promise;
        return 0;
      },
    });
    const job = await jobs.submit("a", pythonSpec("1"));
    const row = await untilEvent(jobs, job, ({ kind }) => kind === "stdout");
    expect(row.data).toBe("name? ");
    go.resolve();
    expect((await ended(jobs, job)).status).toBe("succeeded");
  });
});
