import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import type { HeldLease } from "../../../src/provider/contract.ts";
import { EXECS_MAX, TRANSFERS_MAX } from "../../../src/sandboxes/bounds.ts";
import type { LiveExec } from "../../../src/sandboxes/live-exec.ts";
import { OpenSandbox } from "../../../src/sandboxes/open-sandbox.ts";

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

function open({
  idleSeconds = 10,
  lifetimeSeconds = 100,
  gone,
}: {
  idleSeconds?: number;
  lifetimeSeconds?: number;
  gone?: AbortSignal;
} = {}) {
  const times = { idleSeconds, lifetimeSeconds };
  const rest = { limits: DEFAULT_LIMITS, labels: {}, placement: null };
  const spec = { ...rest, ...times, env: {}, askedLimits: [] };
  const seen = { ended: [] as string[], released: 0 };
  const ids = { id: "s", tenant: "t", workerId: null, instance: "i" };
  const record = { ...rest, ...times, ...ids, createdAt: 0, endedAt: null, reason: null };
  const release = async (): Promise<void> => {
    seen.released += 1;
  };
  const sandbox = new OpenSandbox({
    record,
    spec,
    lease: { release, gone } as unknown as HeldLease,
    onEnded: async (reason) => {
      seen.ended.push(reason);
    },
    onStuck: () => undefined,
  });
  return { sandbox, seen };
}

function fakeExec(id: string) {
  const { promise: done, resolve } = Promise.withResolvers<void>();
  const kills: string[] = [];
  const exec = { id, done, kill: (reason: string) => kills.push(reason) };
  return { exec: exec as unknown as LiveExec, kills, end: resolve };
}

/** Lets promises settle while the clock stands still. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

test("ends when nothing has used it for its idle time, and not before", async () => {
  const { sandbox, seen } = open();
  jest.advanceTimersByTime(9_999);
  const use = sandbox.use();
  jest.advanceTimersByTime(50_000);
  expect(sandbox.ending).toBeNull();
  use[Symbol.dispose]();
  use[Symbol.dispose]();
  jest.advanceTimersByTime(9_999);
  expect(sandbox.ending).toBeNull();
  jest.advanceTimersByTime(1);
  expect(sandbox.ending?.reason).toBe("idle");
  await settle();
  expect(seen).toEqual({ ended: ["idle"], released: 1 });
});

test("is not idle while one of several uses is left", () => {
  const { sandbox } = open();
  const uses = [sandbox.use(), sandbox.use()];
  uses[0]?.[Symbol.dispose]();
  jest.advanceTimersByTime(60_000);
  expect(sandbox.ending).toBeNull();
  uses[1]?.[Symbol.dispose]();
  jest.advanceTimersByTime(10_000);
  expect(sandbox.ending?.reason).toBe("idle");
});

test("an exec keeps it from being idle until it has ended", async () => {
  const { sandbox } = open();
  const { exec, end } = fakeExec("e");
  sandbox.add(exec);
  jest.advanceTimersByTime(60_000);
  expect(sandbox.ending).toBeNull();
  end();
  await settle();
  expect(sandbox.execs.size).toBe(0);
  jest.advanceTimersByTime(10_000);
  expect(sandbox.ending?.reason).toBe("idle");
});

test("ends with its lifetime whatever uses it, and once, for the first reason", async () => {
  const { sandbox, seen } = open({ lifetimeSeconds: 5 });
  const { exec, kills, end } = fakeExec("e");
  sandbox.add(exec);
  using _use = sandbox.use();
  jest.advanceTimersByTime(5_000);
  expect(kills).toEqual(["lifetime"]);
  const ended = sandbox.end({ reason: "user", graceMs: 0 });
  expect(kills).toEqual(["lifetime", "lifetime"]);
  await settle();
  // Not before what ran in it is gone.
  expect(seen).toEqual({ ended: [], released: 0 });
  end();
  await ended;
  expect(seen).toEqual({ ended: ["lifetime"], released: 1 });
});

test("an exec that comes while it ends is killed at once", () => {
  const { sandbox } = open();
  void sandbox.end({ reason: "user", graceMs: 0 });
  const { exec, kills } = fakeExec("late");
  sandbox.add(exec);
  expect(kills).toEqual(["user"]);
});

test("a bounded number of transfers may be under way", () => {
  const { sandbox } = open();
  const uses = Array.from({ length: TRANSFERS_MAX }, () => sandbox.useForTransfer());
  expect(() => sandbox.useForTransfer()).toThrow("transfers of this sandbox");
  uses[0]?.[Symbol.dispose]();
  expect(() => sandbox.useForTransfer()).not.toThrow();
});

test("execs that start count among those that run", () => {
  const { sandbox } = open();
  sandbox.add(fakeExec("running").exec);
  const places = Array.from({ length: EXECS_MAX - 1 }, () => sandbox.placeForExec());
  expect(() => sandbox.placeForExec()).toThrow("64 run in this sandbox");
  places[0]?.[Symbol.dispose]();
  places[0]?.[Symbol.dispose]();
  sandbox.placeForExec();
  expect(() => sandbox.placeForExec()).toThrow("64 run in this sandbox");
});

test("its end waits for what is about to start, and ends that too", async () => {
  const { sandbox, seen } = open();
  const place = sandbox.placeForExec();
  const ended = sandbox.end({ reason: "shutdown", graceMs: 0 });
  await settle();
  expect(seen.released).toBe(0);
  const { exec, kills, end } = fakeExec("late");
  sandbox.add(exec);
  place[Symbol.dispose]();
  place[Symbol.dispose]();
  await settle();
  expect([kills, seen.released]).toEqual([["shutdown"], 0]);
  end();
  await ended;
  expect(seen).toEqual({ ended: ["shutdown"], released: 1 });
});

test("a transfer that is disposed of twice frees one place", () => {
  const { sandbox } = open();
  const uses = Array.from({ length: TRANSFERS_MAX }, () => sandbox.useForTransfer());
  uses[0]?.[Symbol.dispose]();
  uses[0]?.[Symbol.dispose]();
  sandbox.useForTransfer();
  expect(() => sandbox.useForTransfer()).toThrow("are under way");
});

test("a lease that is gone ends it: as worker_lost with its worker, as interrupted otherwise", async () => {
  for (const [reason, end] of [
    ["WORKER_LOST", "worker_lost"],
    ["RELEASED", "interrupted"],
  ] as const) {
    const gone = new AbortController();
    const { sandbox, seen } = open({ gone: gone.signal });
    const { exec, kills, end: done } = fakeExec("e");
    sandbox.add(exec);
    gone.abort(new CprgError("unavailable", "it is gone", { reason }));
    expect([sandbox.ending?.reason, kills]).toEqual([end, [end]]);
    done();
    await sandbox.end({ reason: "user", graceMs: 0 });
    expect(seen.ended).toEqual([end]);
  }
  const gone = AbortSignal.abort(new CprgError("unavailable", "lost", { reason: "WORKER_LOST" }));
  expect(open({ gone }).sandbox.ending?.reason).toBe("worker_lost");
});

test("its own end, which releases the lease, is no loss", async () => {
  const gone = new AbortController();
  const { sandbox, seen } = open({ gone: gone.signal });
  const ended = sandbox.end({ reason: "user", graceMs: 0 });
  gone.abort(new CprgError("failed_precondition", "the claim was released"));
  await ended;
  expect(seen.ended).toEqual(["user"]);
});
