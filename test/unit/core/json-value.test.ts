import { expect, test } from "bun:test";
import { checkedJson, frozenJson, JSON_DEPTH_MAX } from "../../../src/core/json-value.ts";

class Named {
  readonly a = 1;
}

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

test("checkedJson() gives what JSON says, as a copy", () => {
  const value = { a: [1, "é", null, true, { b: -0.5 }], c: undefined, ["__proto__"]: 2 };
  const checked = checkedJson("x", value);
  expect(checked).toEqual({ a: [1, "é", null, true, { b: -0.5 }], ["__proto__"]: 2 });
  expect(Object.keys(checked as object)).toEqual(["a", "__proto__"]);
  expect(checked).not.toBe(value);
  expect(checkedJson("x", undefined)).toBeNull();
  expect(checkedJson("x", Object.create(null))).toEqual({});
  expect(checkedJson("x", nested(JSON_DEPTH_MAX))).toEqual(nested(JSON_DEPTH_MAX) as never);
});

test("checkedJson() refuses the rest, and says where it is", () => {
  const cycle: unknown[] = [];
  cycle.push(cycle);
  for (const [field, value] of [
    ["x", Number.NaN],
    ["x", Number.POSITIVE_INFINITY],
    ["x", 1n],
    ["x", () => 1],
    ["x", Symbol("s")],
    ["x", "\ud800"],
    ["x", new Named()],
    ["x", new Date(0)],
    ["x", new Map()],
    ["x[1]", [1, undefined]],
    ["x[0]", new Array(1)],
    ["x.a.b", { a: { b: 1n } }],
  ] as const) {
    const given = expect.objectContaining({ code: "invalid_argument", field });
    expect(() => checkedJson("x", value)).toThrow(given);
  }
  for (const value of [cycle, nested(JSON_DEPTH_MAX + 1)]) {
    expect(() => checkedJson("x", value)).toThrow(/deep/);
  }
});

test("frozenJson() freezes all of it", () => {
  const value = frozenJson({ a: [{ b: 1 }] });
  expect(Object.isFrozen(value) && Object.isFrozen(value.a) && Object.isFrozen(value.a[0])).toBe(
    true,
  );
});
