import { expect, test } from "bun:test";
import { editDistance, nearest } from "../../../src/cli/suggest.ts";

test.each([
  ["", "", 0],
  ["abc", "abc", 0],
  ["abc", "abd", 1],
  ["abc", "acb", 1],
  ["abc", "", 3],
  ["kitten", "sitting", 3],
])("editDistance(%j, %j) is %d", (left, right, distance) => {
  expect(editDistance(left, right)).toBe(distance);
});

test.each([
  ["jbos", "jobs"],
  ["vers", "version"],
  ["runn", "run"],
  ["zzz", null],
  ["", null],
  ["x".repeat(100), null],
])("nearest(%j) is %j", (word, expected) => {
  expect(nearest(word, ["jobs", "version", "run", "verify"])).toBe(expected);
});
