import { describe, expect, test } from "bun:test";
import {
  formatAddress,
  isLoopback,
  parseAddress,
  parseBearer,
  parseCeilings,
  parseChoice,
  parseInteger,
  parseLayers,
  parseLogSpec,
  parseModel,
  parsePath,
  parseWord,
  splitPair,
} from "../../../src/cli/settings-parse.ts";

describe("parseAddress()", () => {
  test.each([
    ["127.0.0.1:7300", "127.0.0.1", 7300, "127.0.0.1:7300"],
    ["7300", "127.0.0.1", 7300, "127.0.0.1:7300"],
    [":0", "0.0.0.0", 0, "0.0.0.0:0"],
    ["[::1]:80", "::1", 80, "[::1]:80"],
    ["host.example:65535", "host.example", 65_535, "host.example:65535"],
  ])("reads %j", (text, host, port, formatted) => {
    expect(parseAddress(text, "x")).toEqual({ host, port });
    expect(formatAddress({ host, port })).toBe(formatted);
  });

  test.each(["", "a", "a:", "a:b", "::1:80", "a b:1", "a:65536", "a:-1", "http://a:1", "[x]:1"])(
    "refuses %j",
    (text) => {
      expect(() => parseAddress(text, "x")).toThrow(`Cannot use x "${text}"`);
    },
  );
});

test.each([
  ["127.0.0.1", true],
  ["127.9.9.9", true],
  ["::1", true],
  ["localhost", true],
  ["0.0.0.0", false],
  ["::", false],
  ["127.0.0.1.example", false],
  ["10.0.0.1", false],
])("isLoopback(%j) is %j", (host, expected) => {
  expect(isLoopback({ host, port: 1 })).toBe(expected);
});

test("parseInteger() takes whole numbers within its bounds", () => {
  const parse = parseInteger({ least: 1, most: 10 });
  expect([parse("1", "x"), parse(" 10 ", "x")]).toEqual([1, 10]);
  for (const text of ["0", "11", "1.5", "1e1", "", "x", "0x1", "-1", "9".repeat(40)]) {
    expect(() => parse(text, "x")).toThrow();
  }
});

test("parseChoice() takes its names and their other words", () => {
  const parse = parseChoice({ production: ["prod"], development: [] });
  expect([parse("PROD", "x"), parse("development", "x")]).toEqual(["production", "development"]);
  expect(() => parse("dev", "x")).toThrow("expected production, development");
  expect(() => parse("constructor", "x")).toThrow();
});

test("parsePath() starts at the working directory", () => {
  expect(parsePath("/a", "x")).toBe("/a");
  expect(parsePath("a", "x")).toBe(`${process.cwd()}/a`);
  expect(() => parsePath("", "x")).toThrow();
  expect(() => parsePath("a\0b", "x")).toThrow();
});

test("parseLogSpec() reads a level and levels by part", () => {
  expect(parseLogSpec("info,http=debug,store=ERROR", "x")).toEqual({
    level: "info",
    byScope: { http: "debug", store: "error" },
  });
  expect(parseLogSpec("http=debug", "x").level).toBe("info");
  expect(() => parseLogSpec("http=", "x")).toThrow();
});

test("parseCeilings() refuses more seconds than a timer holds", () => {
  expect(parseCeilings(["wall_seconds=2147483"], "x").wall_seconds).toBe(2_147_483);
  for (const name of ["wall_seconds", "cpu_seconds"]) {
    for (const value of ["2147483.5", "3000000", "1e300"]) {
      expect(() => parseCeilings([`${name}=${value}`], "x")).toThrow(
        `Cannot use x "${name}=${value}": expected at most 2147483`,
      );
    }
  }
  expect(parseCeilings(["mem_mb=3000000"], "x").mem_mb).toBe(3_000_000);
});

test("parseLayers() takes the layers that can be given up, and no other", () => {
  expect(parseLayers("cgroup,identity", "x")).toEqual(["cgroup", "identity"]);
  expect(parseLayers([], "x")).toEqual([]);
  for (const name of ["bogus", "cgroups", "root", "constructor"]) {
    expect(() => parseLayers(["cgroup", name], "x")).toThrow(
      `Cannot use x "${name}": only cgroup, identity may be missing`,
    );
  }
});

test("splitPair() cuts at the first =", () => {
  expect(splitPair("a=b=c", "x")).toEqual(["a", "b=c"]);
  expect(splitPair("a=", "x")).toEqual(["a", ""]);
  expect(() => splitPair("=b", "x")).toThrow();
  expect(() => splitPair("a", "x")).toThrow();
});

describe("secrets of the bridge and of agents", () => {
  test("a bearer is long enough that nobody guesses it, and no refusal repeats one", () => {
    expect(parseBearer("0123456789abcdef", "x")).toBe("0123456789abcdef");
    for (const text of ["short-secret", "with a blank 0123456789", "ümlaut-0123456789abcdef", ""]) {
      let message = "accepted";
      try {
        parseBearer(text, "CPRG_BRIDGE_TOKEN");
      } catch (error) {
        message = String(error);
      }
      expect(message).toContain("Cannot use CPRG_BRIDGE_TOKEN");
      if (text !== "") expect(message).not.toContain(text);
    }
    expect(() => parseWord("x".repeat(4097), "x")).toThrow("4096");
  });

  test("a model has a provider that is known", () => {
    expect(parseModel("openai:gpt-5", "x")).toBe("openai:gpt-5");
    expect(parseModel("compatible:org/model:7b", "x")).toBe("compatible:org/model:7b");
    for (const text of ["gpt-5", "other:x", "openai:", "openai:a b"]) {
      expect(() => parseModel(text, "agent_model")).toThrow(`Cannot use agent_model "${text}"`);
    }
  });
});
