import { describe, expect, test } from "bun:test";
import { type LineSpec, parseLine, parseSwitch, splitList } from "../../../src/cli/flags.ts";
import { CprgError } from "../../../src/core/errors.ts";

const spec: LineSpec = {
  flags: {
    code: { kind: "text", value: "CODE", short: "c", doc: "" },
    json: { kind: "switch", short: "j", env: "X_JSON", doc: "" },
    limit: { kind: "list", value: "N=V", env: "X_LIMIT", doc: "" },
    server: { kind: "text", value: "URL", env: "X_SERVER", doc: "" },
    addr: { kind: "text", value: "ADDR", env: "X_ADDR", isSetting: true, doc: "" },
  },
  arguments: [
    { name: "FILE", required: true },
    { name: "OTHER", required: false },
  ],
  takesRest: true,
};

function refusal(words: string[], env: Record<string, string> = {}, over: Partial<LineSpec> = {}) {
  try {
    parseLine(words, { ...spec, ...over }, env);
  } catch (error) {
    if (CprgError.is(error)) return `${error.message} / ${error.hint ?? ""}`;
    throw error;
  }
  throw new Error("it was accepted");
}

describe("parseLine()", () => {
  test("takes flags, arguments and the rest apart", () => {
    const line = parseLine(
      ["-c", "-x", "--limit", "a=1", "f", "--limit=b=2", "-j", "--", "--json", "-"],
      spec,
      {},
    );
    expect(line).toEqual({
      flags: { code: "-x", json: true, limit: ["a=1", "b=2"], server: undefined, addr: undefined },
      args: ["f"],
      rest: ["--json", "-"],
      wantsHelp: false,
    });
  });

  test("tells no rest from an empty one", () => {
    expect(parseLine(["f"], spec, {}).rest).toBeNull();
    expect(parseLine(["f", "--"], spec, {}).rest).toEqual([]);
  });

  test("a lone dash is an argument", () => {
    expect(parseLine(["-"], spec, {}).args).toEqual(["-"]);
  });

  test("the flag wins over the variable, the last of several wins", () => {
    const env = { X_SERVER: "env", X_LIMIT: "a=1, b=2,,", X_JSON: "yes" };
    expect(parseLine(["f"], spec, env).flags).toMatchObject({
      server: "env",
      limit: ["a=1", "b=2"],
      json: true,
    });
    const given = parseLine(["f", "--server=1", "--server", "2", "--limit", "c=3"], spec, env);
    expect(given.flags).toMatchObject({ server: "2", limit: ["c=3"] });
  });

  test("an empty variable is unset and a setting's variable is not read here", () => {
    const line = parseLine(["f"], spec, { X_SERVER: "", X_ADDR: "a", X_JSON: "" });
    expect(line.flags).toMatchObject({ server: undefined, addr: undefined, json: false });
  });

  test.each([["--help"], ["-h"]])("%s wins over everything else", (word) => {
    expect(parseLine(["a", "b", "c", word], spec, {}).wantsHelp).toBe(true);
  });

  test.each([
    [["f", "--jsn"], 'Cannot use flag "--jsn": unknown / Did you mean --json?'],
    [["f", "--zzzzzz"], 'Cannot use flag "--zzzzzz": unknown / --help lists the flags'],
    [["f", "-x"], 'Cannot use flag "-x": unknown / --help lists the flags'],
    [["f", "--toString"], 'Cannot use flag "--toString": unknown / --help lists the flags'],
    [["f", "--__proto__"], 'Cannot use flag "--__proto__": unknown / --help lists the flags'],
    [["f", "--json=1"], 'Cannot use --json "1": it takes no value / '],
    [["f", "--code"], "Cannot use --code: it needs a value (CODE) / "],
    [[], "Cannot go on: FILE is missing / "],
    [
      ["a", "b", "c"],
      'Cannot use argument "c": one too many / Arguments for the program go after --',
    ],
  ])("refuses %j", (words, message) => {
    expect(refusal(words)).toBe(message);
  });

  test("refuses a rest where none is taken, and a variable that is no truth", () => {
    expect(refusal(["f", "--", "x"], {}, { takesRest: false })).toContain('"x"');
    expect(refusal(["f"], { X_JSON: "maybe" })).toContain('X_JSON "maybe"');
  });
});

test("parseSwitch() knows its words only", () => {
  expect(["1", "TRUE", "yes", "on"].map((word) => parseSwitch(word, "x"))).toEqual(
    Array(4).fill(true),
  );
  expect(["0", "false", "No", "off"].map((word) => parseSwitch(word, "x"))).toEqual(
    Array(4).fill(false),
  );
  expect(() => parseSwitch("", "x")).toThrow();
});

test("splitList() drops blanks and empty parts", () => {
  expect(splitList(" a, b ,,c=1 ")).toEqual(["a", "b", "c=1"]);
});
