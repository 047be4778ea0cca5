// The comparison itself: what counts as different, and what is wrong with a list.

import { describe, expect, test } from "bun:test";
import { runBothSides } from "./cpython/batches.ts";
import { differencesOf, judge, moduleOf } from "./cpython/compare.ts";
import { type ModuleReport, parseReports } from "./cpython/module-report.ts";
import type { Side } from "./cpython/sides.ts";

const report = (changes: Partial<ModuleReport> = {}): ModuleReport => ({
  module: "test_os",
  ending: "passed",
  seconds: 1,
  text: "",
  count: 9,
  failed: [],
  skipped: [],
  ...changes,
});
const failed = (...names: string[]) => report({ ending: "failed", failed: names });

describe("differencesOf()", () => {
  test.each([
    { title: "the same", inside: report(), outside: report(), found: [] },
    { title: "fails inside", inside: failed("a", "b"), outside: report(), found: ["a", "b"] },
    { title: "fails on both", inside: failed("a", "b"), outside: failed("b"), found: ["a"] },
    { title: "fails outside only", inside: report(), outside: failed("b"), found: [] },
    { title: "fails whole", inside: failed(), outside: report(), found: ["test_os: failed"] },
    { title: "fails whole on both", inside: failed(), outside: failed(), found: [] },
    {
      title: "hangs",
      inside: report({ ending: "hung" }),
      outside: report(),
      found: ["test_os: hung"],
    },
    {
      title: "crashes",
      inside: report({ ending: "crashed (-11)" }),
      outside: failed("a"),
      found: ["test_os: crashed (-11)"],
    },
    {
      title: "does not run",
      inside: report({ ending: "skipped" }),
      outside: report(),
      found: ["test_os: skipped"],
    },
    {
      title: "runs nowhere",
      inside: report({ ending: "skipped" }),
      outside: report({ ending: "skipped" }),
      found: [],
    },
  ])("$title", ({ inside, outside, found }) => {
    expect(differencesOf(inside, outside)).toEqual(found);
  });

  test("a module that hangs outside measures nothing", () => {
    const hung = report({ ending: "hung" });
    expect(differencesOf(report(), hung)).toEqual(["test_os: hung outside"]);
    expect(differencesOf(hung, hung)).toEqual(["test_os: hung outside"]);
  });
});

describe("judge()", () => {
  const listed = [
    { what: "test.test_os.A.b", reason: "the rule" },
    { what: "test.test_pty.A.c", reason: "the rule" },
  ];
  test.each<{ title: string; runs: string[][]; wrong: string[] }>([
    { title: "as listed", runs: [["test.test_os.A.b"]], wrong: [] },
    {
      title: "new",
      runs: [["test.test_os.A.b", "test.test_os.A.x"]],
      wrong: ["new: test.test_os.A.x"],
    },
    { title: "stale", runs: [[]], wrong: ["no difference any more: test.test_os.A.b"] },
    {
      title: "new by chance",
      runs: [["test.test_os.A.b", "test.test_os.A.x"], ["test.test_os.A.b"]],
      wrong: [],
    },
    {
      title: "new in both runs",
      runs: [
        ["test.test_os.A.b", "test.test_os.A.x", "test.test_os.A.y"],
        ["test.test_os.A.b", "test.test_os.A.x"],
      ],
      wrong: ["new: test.test_os.A.x"],
    },
    { title: "stale by chance", runs: [[], ["test.test_os.A.b"]], wrong: [] },
    { title: "hung", runs: [["test_os: hung", "test.test_os.A.b"]], wrong: ["new: test_os: hung"] },
  ])("$title", ({ runs, wrong }) => {
    expect(judge("test_os", runs, listed)).toEqual(wrong);
  });

  test("a difference belongs to its module", () => {
    expect(moduleOf("test.test_os.PathTests.test_x")).toBe("test_os");
    expect(moduleOf("test_os: hung")).toBe("test_os");
    expect(moduleOf("setUpModule (test.test_mmap)")).toBe("test_mmap");
  });
});

describe("reports", () => {
  const line = (value: unknown): string => `${JSON.stringify(value)}\n`;

  test("name the module in which a run broke off, and leave out a line that is cut", () => {
    const text =
      line({ module: "test_a" }) + line(report({ module: "test_a" })) + line({ module: "test_b" });
    expect(parseReports(`${text}{"module":"test_b","end`)).toEqual({
      ended: [report({ module: "test_a" })],
      unfinished: "test_b",
    });
  });

  test("what a batch had no time for runs in another; a batch that runs nothing is an error", async () => {
    const calls: (readonly string[])[] = [];
    const slow: Side = async ([first = ""], _times) => [report({ module: first })];
    const counting: Side = async (modules, times) => {
      calls.push(modules);
      return await slow(modules, times);
    };
    const times = { each: 1, all: 1, run: 60 };
    const pairs = await runBothSides(
      ["test_a", "test_b"],
      { inside: counting, outside: slow },
      times,
    );
    expect([...pairs.keys()]).toEqual(["test_a", "test_b"]);
    expect(calls).toEqual([["test_a", "test_b"], ["test_b"]]);

    const nothing: Side = async () => [];
    const stuck = runBothSides(["test_a"], { inside: nothing, outside: slow }, times);
    await expect(stuck).rejects.toThrow("nothing ran");
    const late = runBothSides(["test_a"], { inside: slow, outside: slow }, { ...times, run: 0 });
    await expect(late).rejects.toThrow("no time");
  });
});
