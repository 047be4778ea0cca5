import { describe, expect, test } from "bun:test";
import { checkJsonBounds, JSON_DEPTH_MAX, JSON_VALUES_MAX } from "../../../src/http/json-bounds.ts";

const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

describe("checkJsonBounds()", () => {
  test.each([
    ["the deepest that is allowed", nested(JSON_DEPTH_MAX)],
    ["brackets in strings", JSON.stringify({ a: nested(1000), b: `"[[[${"\\".repeat(5)}[` })],
    ["strings that end in backslashes", JSON.stringify(["\\", "\\\\", '\\"', "[".repeat(99)])],
    ["many arrays beside each other", `[${Array.from({ length: 1000 }, () => "[]").join()}]`],
    ["the most values", `[${"1,".repeat(JSON_VALUES_MAX - 1)}1]`],
    ["an open string", '{"a'],
    ["nothing", ""],
    ["a name in two objects", '{"a":{"a":1},"b":[{"a":1},{"a":1}]}'],
    ["a name among values", '{"a":"b","b":["b","b"]}'],
  ])("takes %s", (_, text) => {
    expect(() => checkJsonBounds(text)).not.toThrow();
  });

  test.each([
    ["one level more", nested(JSON_DEPTH_MAX + 1)],
    ["depth behind a string with a quote", `["\\"",${nested(JSON_DEPTH_MAX)}]`],
    ["depth behind a string with backslashes", `["\\\\",${nested(JSON_DEPTH_MAX)}]`],
    ["objects in arrays", '[{"a":'.repeat(JSON_DEPTH_MAX)],
    ["one value more", `[${"1,".repeat(JSON_VALUES_MAX)}1]`],
    ["a name twice", '{"a":1,"b":[{}],"a":2}'],
    ["a name twice within", '{"env":{"A":"1","A":"2"}}'],
    ["a name twice, written in two ways", '{"a":1,"\\u0061":2}'],
    ["many names", `{${Array.from({ length: JSON_VALUES_MAX }, (_, n) => `"${n}":1`).join()}}`],
  ])("refuses %s", (_, text) => {
    expect(() => checkJsonBounds(text)).toThrow("Cannot read body");
  });
});
