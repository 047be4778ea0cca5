import { expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { RATE_WINDOW_MS, RateWindows } from "../../../src/tenancy/rate-windows.ts";

/** Windows under a clock that stands still. */
function windows(options: { perMin?: number; windowsMax?: number } = {}) {
  const clock = { now: 12_345.6, monotonicMs: () => clock.now };
  return { clock, rates: new RateWindows({ ...options, clock }) };
}

/** How many of so many requests pass, and what the refused are told. */
function burst(rates: RateWindows, count: number, key = "k", perMin: number | null = null) {
  let passed = 0;
  let retryAfter: number | undefined;
  for (let index = 0; index < count; index += 1) {
    try {
      rates.take(key, perMin);
      passed += 1;
    } catch (error) {
      if (!CprgError.is(error)) throw error;
      expect(error).toMatchObject({ code: "resource_exhausted", reason: "RATE_LIMITED" });
      retryAfter = error.retryAfterSeconds;
    }
  }
  return { passed, retryAfter };
}

test("of 500 at once exactly 120 pass", () => {
  const { rates } = windows();
  expect(burst(rates, 500)).toEqual({ passed: 120, retryAfter: 60 });
});

test.each([0, 1, 999, 1000, 1001, 30_000, 59_000, 59_999])(
  "after %d ms Retry-After is the first whole second at which one passes",
  (elapsedMs) => {
    const { rates, clock } = windows();
    burst(rates, 120);
    clock.now += elapsedMs;
    const { passed, retryAfter = 0 } = burst(rates, 1);
    expect(passed).toBe(0);
    const refusedAt = clock.now;
    clock.now = refusedAt + (retryAfter - 1) * 1000;
    expect(burst(rates, 1).passed).toBe(0);
    clock.now = refusedAt + retryAfter * 1000;
    expect(burst(rates, 1).passed).toBe(1);
  },
);

test("keys have windows of their own, and rates of their own", () => {
  const { rates, clock } = windows({ perMin: 3 });
  expect(burst(rates, 9, "a").passed).toBe(3);
  expect(burst(rates, 9, "b").passed).toBe(3);
  expect(burst(rates, 9, "c", 5).passed).toBe(5);
  clock.now += RATE_WINDOW_MS;
  expect(burst(rates, 9, "a").passed).toBe(3);
});

test("the table has a bound, and ended windows make room", () => {
  const { rates, clock } = windows({ windowsMax: 2 });
  expect(burst(rates, 1, "a").passed).toBe(1);
  clock.now += 1000;
  expect(burst(rates, 1, "b").passed).toBe(1);
  expect(burst(rates, 1, "c")).toEqual({ passed: 0, retryAfter: 59 });
  expect(burst(rates, 1, "b").passed).toBe(1);
  clock.now += 59_000;
  expect(burst(rates, 1, "c").passed).toBe(1);
  expect(rates.size).toBe(2);
});
