import { expect, test } from "bun:test";
import { silentLog } from "../../../src/core/log.ts";
import { DISK_FULL_SWEEP_INTERVAL_MS, Retention } from "../../../src/jobs/retention.ts";
import type { Pruned } from "../../../src/store/contract.ts";

const HOUR_MS = 3_600_000;
let monotonicMs = 0;
const clock = { now: () => 10 * HOUR_MS, monotonicMs: () => monotonicMs };

/** A retention over a store whose steps are listed, and what it asked for. */
function withSteps(
  steps: readonly (Pruned | Error)[],
  change: {
    retentionHours?: number;
    sweepIntervalMs?: number;
    onSweep?: () => Promise<void>;
    onSwept?: () => Promise<void>;
  } = {},
) {
  const asked: number[] = [];
  const all = Promise.withResolvers<void>();
  const prune = async (before: number): Promise<Pruned> => {
    asked.push(before);
    if (asked.length === steps.length) all.resolve();
    const step = steps[asked.length - 1] ?? { runs: 0, events: 0, isDone: true };
    if (step instanceof Error) throw step;
    return step;
  };
  const retention = new Retention({
    store: { prune },
    retentionHours: 3,
    sweepIntervalMs: 1,
    ...change,
    clock,
    log: silentLog,
  });
  return { retention, asked, all: all.promise };
}

const some = { runs: 1, events: 3, isDone: false };
const last = { runs: 1, events: 2, isDone: true };

test("a sweep goes on until nothing is left, for what ended before the retention", async () => {
  const { retention, asked } = withSteps([some, some, last]);
  expect(await retention.sweep()).toEqual({ runs: 3, events: 8 });
  expect(asked).toEqual([7 * HOUR_MS, 7 * HOUR_MS, 7 * HOUR_MS]);
});

test("it sweeps at the start and at every interval, also after a failure, until it is stopped", async () => {
  const { retention, asked, all } = withSteps([last, new Error("broken"), last]);
  retention.start();
  await all;
  await retention.stop();
  const { length } = asked;
  expect(await retention.sweep()).toEqual({ runs: 0, events: 0 });
  expect(asked).toHaveLength(length);
});

test("a retention of 0 removes nothing", async () => {
  const { retention, asked } = withSteps([last], { retentionHours: 0 });
  retention.start();
  await retention.stop();
  expect(asked).toEqual([]);
});

test("what is kept elsewhere goes after a sweep that removed runs, and after no other", async () => {
  const swept: number[] = [];
  const none = { runs: 0, events: 0, isDone: true };
  const { retention, asked, all } = withSteps([none, last, none], {
    onSwept: async () => {
      swept.push(asked.length);
    },
  });
  retention.start();
  await all;
  await retention.stop();
  expect(swept).toEqual([2]);
});

test("what is kept elsewhere goes after a sweep that failed when it had removed runs, too", async () => {
  const swept: number[] = [];
  const { retention, asked, all } = withSteps([some, new Error("the disk is full"), last], {
    onSwept: async () => {
      swept.push(asked.length);
    },
  });
  retention.start();
  await all;
  await retention.stop();
  expect(swept).toEqual([2, 3]);
});

test("what else is past its time goes after runs: a full disk has no room for it before", async () => {
  const swept: number[] = [];
  const { retention, asked } = withSteps([some, last], {
    onSweep: async () => {
      swept.push(asked.length);
    },
  });
  await retention.sweep();
  expect(swept).toEqual([2]);
});

test("a full disk is swept at once, and not again before its interval is over", async () => {
  const { retention, asked } = withSteps([last, last, last], { sweepIntervalMs: HOUR_MS });
  // Every sweep ends in one microtask or another: what waits for it is its stop, or this.
  const settled = async () => await Bun.sleep(0);
  retention.start();
  retention.hurry();
  expect(asked).toHaveLength(1);
  await settled();
  retention.hurry();
  await settled();
  expect(asked).toHaveLength(2);
  monotonicMs += DISK_FULL_SWEEP_INTERVAL_MS - 1;
  retention.hurry();
  await settled();
  expect(asked).toHaveLength(2);
  monotonicMs += 1;
  retention.hurry();
  retention.hurry();
  await settled();
  expect(asked).toHaveLength(3);
  await retention.stop();
  monotonicMs += DISK_FULL_SWEEP_INTERVAL_MS;
  retention.hurry();
  expect(asked).toHaveLength(3);
});

test("a full disk removes nothing where nothing is removed by age", async () => {
  const { retention, asked } = withSteps([last], { retentionHours: 0 });
  retention.hurry();
  await retention.stop();
  expect(asked).toEqual([]);
});
