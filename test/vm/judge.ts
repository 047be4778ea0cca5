// Judges what a ground reported: every test by its id, the same ids as on the grounds before, and no
// skip without a reason of the kernel's.

import { createHash } from "node:crypto";
import type { Ground } from "./grounds.ts";
import type { Ended } from "./machine.ts";
import type { ReportLine, TestReport } from "./report.ts";

/** What became of a ground. */
export interface Verdict {
  readonly ground: string;
  readonly kernel: string;
  readonly uid: number;
  readonly cgroup: string;
  readonly slowness: number;
  readonly durationMs: number;
  readonly passed: number;
  /** Failed tests and problems together. */
  readonly failed: number;
  readonly skipped: number;
  /** A hash of all ids: equal on two grounds when their tests are the same. */
  readonly ids: string;
  readonly tests: readonly TestReport[];
  readonly problems: readonly string[];
}

/** @param before verdicts on other grounds that ran the same files */
export function judge(
  ground: Ground,
  ended: Pick<Ended, "lines" | "durationMs" | "problem">,
  before: readonly Verdict[],
): Verdict {
  const machine = ended.lines.find((line) => line.type === "machine");
  const files = ended.lines.filter((line) => line.type === "file");
  const tests = files.flatMap((file) => file.tests);
  const ids = tests.map(({ id }) => plainId(id)).sort();
  const problems = [
    ...(ended.problem === null ? [] : [ended.problem]),
    ...files.flatMap(({ file, problem }) => (problem === null ? [] : [`${file} ${problem}`])),
    ...machineProblems(ground, machine),
    ...skipProblems(ground, tests),
    ...idProblems(ids, before),
    ...(tests.length === 0 ? ["ran no test"] : []),
  ];
  const count = (status: TestReport["status"]): number =>
    tests.filter((test) => test.status === status).length;
  return {
    ground: ground.name,
    kernel: machine?.kernel ?? "unknown",
    uid: machine?.uid ?? -1,
    cgroup: machine?.cgroup ?? "unknown",
    slowness: machine?.slowness ?? 0,
    durationMs: Math.round(ended.durationMs),
    passed: count("passed"),
    failed: count("failed") + problems.length,
    skipped: count("skipped"),
    ids: createHash("sha256").update(ids.join("\n")).digest("hex").slice(0, 16),
    tests,
    problems,
  };
}

/** An id without the reason for which requireHost() of test/helpers/host.ts skips it. */
function plainId(id: string): string {
  return id.replaceAll(/ \[needs [^\]]+\]/g, "");
}

function machineProblems(
  ground: Ground,
  machine: Extract<ReportLine, { type: "machine" }> | undefined,
): string[] {
  if (machine === undefined) return ["the machine has not said what it is"];
  const isRoot = machine.uid === 0;
  const wrong: string[] = [];
  if (isRoot !== (ground.user === "root")) wrong.push(`ran as uid ${machine.uid}`);
  if (ground.cgroup !== "own" && machine.cgroup !== ground.cgroup) {
    wrong.push(`has cgroup ${machine.cgroup}`);
  }
  return wrong;
}

function skipProblems(ground: Ground, tests: readonly TestReport[]): string[] {
  return tests
    .filter(({ status }) => status === "skipped")
    .filter(({ id }) => {
      const needs = /\[needs ([^\]]+)\]/.exec(id)?.[1]?.split(", ");
      return !(needs?.every((need) => Object.hasOwn(ground.lacks, need)) ?? false);
    })
    .map(({ id }) => `skipped without a reason of the kernel's: ${id}`);
}

function idProblems(ids: readonly string[], before: readonly Verdict[]): string[] {
  const [first] = before;
  if (first === undefined) return [];
  const known = new Set(first.tests.map(({ id }) => plainId(id)));
  const missing = [...known].filter((id) => !ids.includes(id));
  const added = ids.filter((id) => !known.has(id));
  return [
    ...missing.map((id) => `has not run what ${first.ground} has: ${id}`),
    ...added.map((id) => `has run what ${first.ground} has not: ${id}`),
  ];
}
