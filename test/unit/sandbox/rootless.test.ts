import { expect, test } from "bun:test";
import { modeFor, ownIds } from "../../../src/sandbox/rootless.ts";

test("auto is ns for root and rootless for a user; ns is root's alone", () => {
  expect(modeFor("auto", 0)).toBe("ns");
  expect(modeFor("auto", 1000)).toBe("rootless");
  expect(modeFor("rootless", 0)).toBe("rootless");
  expect(modeFor("rootless", 1000)).toBe("rootless");
  expect(modeFor("off", 1000)).toBe("off");
  expect(modeFor("ns", 0)).toBe("ns");
  expect(() => modeFor("ns", 1000)).toThrow(expect.objectContaining({ reason: "NOT_ROOT" }));
});

test("every sandbox of a user has the user's own id", () => {
  const source = ownIds(1000);
  const [one, two] = [source.take(), source.take()];
  expect([one.init, one.program, two.init, two.program]).toEqual([1000, 1000, 1000, 1000]);
  one.release();
});
