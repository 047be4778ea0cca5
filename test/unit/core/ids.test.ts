import { expect, test } from "bun:test";
import { isId, newId } from "../../../src/core/ids.ts";

test("newId() makes ids that are unique, sort by time, and pass isId()", () => {
  const before = Date.now();
  const ids = Array.from({ length: 10_000 }, newId);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.toSorted()).toEqual(ids);
  expect(ids.every(isId)).toBe(true);
  const madeAt = Number.parseInt((ids[0] ?? "").replace("-", "").slice(0, 12), 16);
  expect(madeAt).toBeGreaterThanOrEqual(before);
  expect(madeAt).toBeLessThanOrEqual(Date.now());
});

test("isId() refuses everything else", () => {
  const id = newId();
  const hostile = [
    "",
    id.toUpperCase(),
    ` ${id}`,
    `${id}\n`,
    `${id}\0`,
    id.slice(1),
    `${id}0`,
    id.replaceAll("-", ""),
    `{${id}}`,
    // Version 4, and a variant that RFC 9562 does not use.
    `${id.slice(0, 14)}4${id.slice(15)}`,
    `${id.slice(0, 19)}c${id.slice(20)}`,
    "../../etc/passwd",
    "x".repeat(1_000_000),
  ];
  expect(hostile.filter(isId)).toEqual([]);
});
