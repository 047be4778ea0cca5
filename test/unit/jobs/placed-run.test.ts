// A job on a worker that does what no worker of ours does.

import { expect, test } from "bun:test";
import { systemClock } from "../../../src/core/clock.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { PLACED_EVENTS_MAX, type PlacedRun, runPlaced } from "../../../src/jobs/placed-run.ts";
import { jobSpec } from "../../../src/jobs/spec.ts";
import { StopSwitch } from "../../../src/jobs/stop-switch.ts";
import type { WorkerJobEvent } from "../../../src/provider/placement.ts";

type RunJob = PlacedRun["claim"]["runJob"];

function given(runJob: RunJob, rest: Partial<PlacedRun> = {}) {
  const gone = new AbortController();
  const rows: unknown[] = [];
  const stop = new StopSwitch();
  const release = async (): Promise<void> => {
    gone.abort(new CprgError("failed_precondition", "the claim was released"));
  };
  const run: PlacedRun = {
    spec: jobSpec({ argv: ["x"], limits: { wall_seconds: 0.05 } }),
    claim: { runJob, gone: gone.signal, release },
    append: async (drafts) => rows.push(...drafts),
    stop,
    clock: systemClock,
    ...rest,
  };
  return { run, rows, stop, gone };
}

const usage: WorkerJobEvent = {
  at: 0,
  draft: { kind: "usage", data: { cpu_ms: 1, memory_bytes: null, pids: null } },
};

test("one that never ends is cancelled after its time, and loses the claim when that does nothing", async () => {
  let isCancelled = false;
  const { run, gone } = given(
    async function* (_, { signal } = {}) {
      signal?.addEventListener("abort", () => {
        isCancelled = true;
      });
      yield usage;
      await new Promise((_, reject) => {
        gone.signal.addEventListener("abort", () => reject(gone.signal.reason));
      });
    },
    { marginMs: 50 },
  );
  const outcome = await runPlaced(run);
  expect(isCancelled).toBe(true);
  expect(gone.signal.aborted).toBe(true);
  expect(outcome).toMatchObject({ reason: "interrupted", exitCode: null });
});

test("one that sends without end is cut off", async () => {
  let sent = 0;
  const { run, rows } = given(
    async function* () {
      for (;;) {
        sent += 1;
        yield usage;
      }
    },
    { spec: jobSpec({ argv: ["x"] }) },
  );
  const outcome = await runPlaced(run);
  expect(outcome.reason).toBe("runner_error");
  expect(outcome.error?.message).toContain("events");
  expect([sent, rows.length]).toEqual([PLACED_EVENTS_MAX + 1, PLACED_EVENTS_MAX]);
});

test("what the store does not take ends it, and is no success", async () => {
  const append = async (): Promise<never> => {
    throw new CprgError("resource_exhausted", "the disk is full", { reason: "DISK_FULL" });
  };
  const { run } = given(
    async function* () {
      yield usage;
    },
    { append },
  );
  expect(await runPlaced(run)).toMatchObject({ reason: "disk_full" });
});

test("one that a worker refuses says why", async () => {
  const refusal = new CprgError("invalid_argument", "Cannot run code: it is no UTF-8");
  const refused: RunJob = () => ({
    [Symbol.asyncIterator]: () => ({ next: async () => await Promise.reject(refusal) }),
  });
  const { run } = given(refused);
  expect(await runPlaced(run)).toMatchObject({
    reason: "setup_failed",
    signal: null,
    durationMs: 0,
    error: { message: "Cannot run code: it is no UTF-8" },
  });
});

test("a stop by the server waits for its grace, one by the user does not", async () => {
  for (const [reason, least] of [
    ["shutdown", 90],
    ["user", 0],
  ] as const) {
    const startedMs = performance.now();
    const { run, stop } = given(
      async function* (_, { signal } = {}) {
        yield usage;
        await new Promise((_, reject) => {
          signal?.addEventListener("abort", () => {
            reject(new CprgError("canceled", "nothing of it runs any more"));
          });
        });
      },
      { spec: jobSpec({ argv: ["x"] }) },
    );
    stop.stop({ reason, graceMs: 100 });
    expect(await runPlaced(run)).toMatchObject({ reason });
    const tookMs = performance.now() - startedMs;
    expect(tookMs).toBeGreaterThanOrEqual(least);
    expect(tookMs).toBeLessThan(5000);
  }
});
