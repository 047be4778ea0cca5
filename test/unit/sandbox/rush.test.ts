// Who waits for whom: a builder for those in a hurry, never for ever.

import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { CALM_WAIT_MS_MAX, RUSH_MS_MAX, Rush } from "../../../src/sandbox/rush.ts";

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** Whether it is calm, asked until `resolved` is looked at. */
async function watch(rush: Rush) {
  const seen = { isCalm: false };
  void rush.calm().then(() => {
    seen.isCalm = true;
  });
  await settle();
  return seen;
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
}

test("it is calm when nobody is in a hurry", async () => {
  expect((await watch(new Rush())).isCalm).toBe(true);
});

test("it is calm when the last has ended, each once", async () => {
  const rush = new Rush();
  const [first, second] = [rush.begin(), rush.begin()];
  const seen = await watch(rush);
  first();
  first();
  await settle();
  expect(seen.isCalm).toBe(false);
  second();
  await settle();
  expect(seen.isCalm).toBe(true);
});

test("one that goes on is in a hurry no more", async () => {
  const rush = new Rush();
  rush.begin();
  const seen = await watch(rush);
  jest.advanceTimersByTime(RUSH_MS_MAX - 1);
  await settle();
  expect(seen.isCalm).toBe(false);
  jest.advanceTimersByTime(1);
  await settle();
  expect(seen.isCalm).toBe(true);
});

test("nobody waits for more than a bound while others come and go", async () => {
  const rush = new Rush();
  rush.begin();
  const seen = await watch(rush);
  const step = RUSH_MS_MAX - 5;
  for (let passed = step; passed < CALM_WAIT_MS_MAX; passed += step) {
    jest.advanceTimersByTime(step);
    rush.begin();
    await settle();
    expect(seen.isCalm).toBe(false);
  }
  jest.advanceTimersByTime(step);
  await settle();
  expect(seen.isCalm).toBe(true);
});
