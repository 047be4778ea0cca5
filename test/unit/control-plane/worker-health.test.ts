import { afterEach, expect, jest, test } from "bun:test";
import { QUARANTINE_AFTER, WorkerHealth } from "../../../src/control-plane/worker-health.ts";

afterEach(() => {
  jest.useRealTimers();
});

test("a worker rests after failures in a row, and after each that follows", () => {
  jest.useFakeTimers();
  let rested = 0;
  const health = new WorkerHealth({ restMs: 1000, onRested: () => (rested += 1) });
  const fail = (times: number): void => {
    for (let time = 0; time < times; time += 1) health.failed();
  };
  fail(QUARANTINE_AFTER - 1);
  health.succeeded();
  fail(QUARANTINE_AFTER - 1);
  expect(health.isQuarantined).toBe(false);
  fail(1);
  expect([health.isQuarantined, health.failures]).toEqual([true, QUARANTINE_AFTER]);
  jest.advanceTimersByTime(999);
  expect(health.isQuarantined).toBe(true);
  jest.advanceTimersByTime(1);
  expect([health.isQuarantined, rested]).toEqual([false, 1]);
  fail(1);
  expect(health.isQuarantined).toBe(true);
  health.clear();
  expect([health.isQuarantined, health.failures]).toEqual([false, 0]);
  jest.advanceTimersByTime(5000);
  expect(rested).toBe(1);
});
