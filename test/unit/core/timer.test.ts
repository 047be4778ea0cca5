import { describe, expect, test } from "bun:test";
import { startTimer } from "../../../src/core/timer.ts";

/** Resolves after every timer of at most 5 ms that was started before. */
const laterThanShortOnes = () => new Promise((resolve) => setTimeout(resolve, 5));

describe("startTimer()", () => {
  for (const delayMs of [2 ** 31, 2 ** 53, Number.POSITIVE_INFINITY]) {
    test(`${delayMs} ms are not over at once`, async () => {
      let calls = 0;
      const timer = startTimer(delayMs, () => {
        calls += 1;
      });
      await laterThanShortOnes();
      timer.clear();
      expect(calls).toBe(0);
    });
  }

  for (const delayMs of [0, 1, -5, Number.NaN]) {
    test(`${delayMs} ms are`, async () => {
      const fired = Promise.withResolvers<string>();
      startTimer(delayMs, () => fired.resolve("fired"));
      expect(await fired.promise).toBe("fired");
    });
  }

  test("one that is cleared does not fire, and clearing again does nothing", async () => {
    let calls = 0;
    const timer = startTimer(1, () => {
      calls += 1;
    });
    timer.clear();
    timer.clear();
    await laterThanShortOnes();
    expect(calls).toBe(0);
  });
});
