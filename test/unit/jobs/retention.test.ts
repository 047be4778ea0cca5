import { expect, test } from "bun:test";
import { silentLog } from "../../../src/core/log.ts";
import { Retention } from "../../../src/jobs/retention.ts";
import type { Pruned } from "../../../src/store/contract.ts";

const HOUR_MS = 3_600_000;
const clock = { now: () => 10 * HOUR_MS, monotonicMs: () => 0 };

/** A retention over a store whose steps are listed, and what it asked for. */
function withSteps(
  steps: readonly (Pruned | Error)[],
  change: { retentionHours?: number; onSwept?: () => Promise<void> } = {},
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
    retentionHours: change.retentionHours ?? 3,
    sweepIntervalMs: 1,
    ...(change.onSwept === undefined ? {} : { onSwept: change.onSwept }),
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
