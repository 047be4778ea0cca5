// What a worker and a control plane may say of themselves, and what is refused.

import { describe, expect, test } from "bun:test";
import {
  bearerToken,
  controlHeaders,
  type Header,
  parseControl,
  parseRegistration,
  type Registration,
  registrationHeaders,
} from "../../../src/bridge/metadata.ts";
import type { CprgError } from "../../../src/core/errors.ts";

const full: Registration = {
  workerId: "host-1:a.b_C",
  name: 'Büro "1" \\ 🦊',
  labels: { "runtime/x": "modal", tier: "ü", __proto__x: "" },
  methods: ["exec.Start", "/internal/credit"],
  version: "0.1.0",
  slots: 4,
  secret: "abc_-9",
  claims: [
    { taskId: "t.1", epoch: 1 },
    { taskId: "t2", epoch: Number.MAX_SAFE_INTEGER },
  ],
};

const base: readonly Header[] = [
  ["authorization", "Bearer t"],
  ["x-worker-id", "w"],
];

function refusal(headers: readonly Header[]): CprgError {
  try {
    parseRegistration(headers);
  } catch (error) {
    return error as CprgError;
  }
  throw new Error("it was not refused");
}

test("what is said is what is read, in ASCII", () => {
  const headers = registrationHeaders(full, "token");
  for (const [, value] of headers) expect(value).toMatch(/^[ -~]*$/);
  expect(bearerToken(headers)).toBe("token");
  const read = parseRegistration(headers);
  expect({ ...read, labels: { ...read.labels } }).toEqual(full);
});

test("a plain peer says its token and its id only", () => {
  expect(parseRegistration(base)).toMatchObject({
    workerId: "w",
    name: "",
    methods: [],
    slots: 1,
    secret: undefined,
    claims: [],
  });
});

test("spaces around commas do not count, unknown headers are ignored", () => {
  const headers: Header[] = [
    ...base,
    ["x-worker-methods", " a.B , c "],
    ["x-forwarded-for", "é"],
    ["x-forwarded-for", "twice"],
  ];
  expect(parseRegistration(headers).methods).toEqual(["a.B", "c"]);
});

test("a name with a lone backslash is taken as it is", () => {
  expect(parseRegistration([...base, ["x-worker-name", "C:\\work"]]).name).toBe("C:\\work");
});

test.each([
  ['say "hi"', 'say "hi"'],
  [String.raw`say \"hi\"`, 'say "hi"'],
  [String.raw`"\\ \u00e9`, '"\\ é'],
])("a quote in a name stands for itself, escaped or not: %s", (text, name) => {
  expect(parseRegistration([...base, ["x-worker-name", text]]).name).toBe(name);
});

test("`__proto__` is a label like any other", () => {
  const { labels } = parseRegistration([...base, ["x-worker-labels", '{"__proto__":"x"}']]);
  expect(Object.keys(labels)).toEqual(["__proto__"]);
});

describe("refused, naming the header", () => {
  const many = (count: number, each: (index: number) => string): string =>
    Array.from({ length: count }, (_, index) => each(index)).join(",");
  test.each([
    ["x-worker-id", ""],
    ["x-worker-id", "-begins-with-no-letter"],
    ["x-worker-id", "a b"],
    ["x-worker-id", "x".repeat(129)],
    ["x-worker-id", "../../etc"],
    ["x-worker-name", "x".repeat(129)],
    ["x-worker-name", "é"],
    ["x-worker-labels", "{"],
    ["x-worker-labels", "[]"],
    ["x-worker-labels", "null"],
    ["x-worker-labels", '{"a":1}'],
    ["x-worker-labels", '{"a b":"x"}'],
    ["x-worker-labels", '{"a":"\\ud800"}'],
    ["x-worker-labels", `{"a":"${"x".repeat(257)}"}`],
    ["x-worker-labels", `{${many(33, (index) => `"l${index}":"x"`)}}`],
    ["x-worker-methods", "a,,b"],
    ["x-worker-methods", "a b"],
    ["x-worker-methods", "x".repeat(65)],
    ["x-worker-methods", many(129, (index) => `m${index}`)],
    ["x-worker-version", "x".repeat(65)],
    ["x-worker-slots", "0"],
    ["x-worker-slots", "1025"],
    ["x-worker-slots", "1.5"],
    ["x-worker-slots", "-1"],
    ["x-worker-slots", " 1"],
    ["x-worker-secret", ""],
    ["x-worker-secret", "a b"],
    ["x-worker-claims", "t"],
    ["x-worker-claims", "t:0"],
    ["x-worker-claims", "t:x"],
    ["x-worker-claims", "t:9999999999999999"],
    ["x-worker-claims", "t:1,t:2"],
    ["x-worker-claims", "a/b:1"],
  ])("%s: %s", (name, value) => {
    const headers = [...base.filter(([each]) => each !== name), [name, value] as const];
    const error = refusal(headers);
    expect(error).toMatchObject({ code: "invalid_argument", reason: "BAD_METADATA" });
    expect(error.message).toStartWith(`${name}: `);
  });

  test("one that is missing, one that is there twice, all that are too long together", () => {
    expect(refusal([["authorization", "Bearer t"]]).message).toStartWith("x-worker-id: ");
    expect(refusal([...base, ["x-worker-id", "w"]]).message).toBe("x-worker-id: there twice");
    const long: Header = ["x-worker-future", "x".repeat(8192)];
    expect(refusal([...base, long]).message).toStartWith("metadata: ");
  });
});

describe("tokens", () => {
  test.each([
    ["none", []],
    ["an empty one", [["authorization", "Bearer "]]],
    ["another scheme", [["authorization", "Basic eDp5"]]],
    ["one with a space", [["authorization", "Bearer a b"]]],
    ["two", [base[0], base[0]]],
  ] as [string, Header[]][])("%s is NO_TOKEN", (_, headers) => {
    expect(() => bearerToken(headers)).toThrow("authorization is not `Bearer TOKEN`");
  });
});

describe("the control plane's answer", () => {
  const control = { methods: ["heartbeat.ack"], version: "1", heartbeatSeconds: 5, secret: "s" };

  test("what is said is what is read", () => {
    expect(parseControl(controlHeaders(control))).toEqual(control);
  });

  test("a plain peer says nothing", () => {
    expect(parseControl([["content-type", "application/grpc"]])).toEqual({
      methods: [],
      version: "",
      heartbeatSeconds: 30,
      secret: undefined,
    });
  });

  test.each([
    ["x-control-methods", "a b"],
    ["x-control-version", "x".repeat(65)],
    ["x-control-heartbeat-seconds", "0"],
    ["x-control-heartbeat-seconds", "3601"],
    ["x-worker-secret", "a b"],
  ])("%s: %s is as good as absent", (name, value) => {
    const others = controlHeaders(control).filter(([each]) => each !== name);
    expect(parseControl([...others, [name, value]])).toEqual(parseControl(others));
    expect(parseControl([...others, [name, "1"], [name, "1"]])).toEqual(parseControl(others));
  });

  test.each([
    { methods: ["a b"] },
    { version: "x".repeat(65) },
    { heartbeatSeconds: 0 },
    { secret: "a b" },
  ])("%j is not sent", (wrong) => {
    expect(() => controlHeaders({ ...control, ...wrong })).toThrow(": ");
  });
});
