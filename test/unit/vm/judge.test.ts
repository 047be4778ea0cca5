import { describe, expect, test } from "bun:test";
import { groundNamed } from "../../vm/grounds.ts";
import { judge } from "../../vm/judge.ts";
import type { ReportLine, TestReport } from "../../vm/report.ts";

const MACHINE: ReportLine = { type: "machine", kernel: "6.1", uid: 0, cgroup: "v2", slowness: 4 };
const END: ReportLine = { type: "end" };
const ground = groundNamed("v2-root");

const report = (tests: readonly TestReport[], problem: string | null = null): ReportLine => ({
  type: "file",
  file: "a.test.ts",
  durationMs: 1,
  tests,
  problem,
});
const test1 = (id: string, status: TestReport["status"] = "passed"): TestReport => ({ id, status });
const judged = (lines: readonly ReportLine[], problem: string | null = null) =>
  judge(ground, { lines, durationMs: 1000, problem }, []);

describe("judge()", () => {
  test("counts tests by how they ended, and says what the machine is", () => {
    const verdict = judged([MACHINE, report([test1("a"), test1("b", "failed")]), END]);
    expect(verdict).toMatchObject({ passed: 1, failed: 1, skipped: 0, problems: [] });
    expect(verdict).toMatchObject({ kernel: "6.1", uid: 0, cgroup: "v2", slowness: 4 });
  });

  test("a machine that died, said nothing or ran nothing has failed", () => {
    expect(judged([MACHINE, report([test1("a")])], "Kernel panic at b.test.ts")).toMatchObject({
      passed: 1,
      failed: 1,
      problems: ["Kernel panic at b.test.ts"],
    });
    expect(judged([]).problems).toEqual(["the machine has not said what it is", "ran no test"]);
  });

  test("a file with a problem has failed, whatever its tests say", () => {
    const verdict = judged([MACHINE, report([test1("a")], "killed after 180 s"), END]);
    expect(verdict).toMatchObject({ failed: 1, problems: ["a.test.ts killed after 180 s"] });
  });

  test("a skip is accepted for a reason of the kernel's that the ground names, and no other", () => {
    const named = test1("a [needs cgroup-v1] > b", "skipped");
    expect(judged([MACHINE, report([named]), END])).toMatchObject({ failed: 0, skipped: 1 });
    for (const id of ["a", "a [needs root]", "a [needs cgroup-v1, root]"]) {
      const verdict = judged([MACHINE, report([test1(id, "skipped")]), END]);
      expect(verdict.problems).toEqual([`skipped without a reason of the kernel's: ${id}`]);
    }
  });

  test("another user or another version of cgroups than the ground's is a problem", () => {
    const other = { ...MACHINE, uid: 1000, cgroup: "hybrid" };
    expect(judged([other, report([test1("a")]), END]).problems).toEqual([
      "ran as uid 1000",
      "has cgroup hybrid",
    ]);
  });

  test("the same ids are wanted on every ground, skipped or not", () => {
    const first = judged([MACHINE, report([test1("a"), test1("b")]), END]);
    const next = (tests: readonly TestReport[]) => {
      const lines = [MACHINE, report(tests), END];
      return judge(ground, { lines, durationMs: 1, problem: null }, [first]);
    };
    const same = next([test1("b [needs cgroup-v1]", "skipped"), test1("a")]);
    expect(same).toMatchObject({ failed: 0, ids: first.ids });
    const other = next([test1("a"), test1("c")]);
    expect(other.ids).not.toBe(first.ids);
    expect(other.problems).toEqual([
      "has not run what v2-root has: b",
      "has run what v2-root has not: c",
    ]);
  });
});
