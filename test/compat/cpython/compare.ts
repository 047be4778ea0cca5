/**
 * What is different inside: a test that fails there and not outside, or a module that does not come to
 * its end or does not run at all there. A difference is a line of text, the same in each run.
 */

import type { ModuleReport } from "./module-report.ts";

/** One known difference. */
export interface ListedDifference {
  /** A test's id, or a module with how it ends. */
  readonly what: string;
  /** The rule of the sandbox that makes it. */
  readonly reason: string;
}

/** Endings that say what became of the tests. */
const COMPLETE: readonly string[] = ["passed", "failed", "skipped"];

/** A module that does not come to an end outside measures nothing, which is a difference too. */
export function differencesOf(inside: ModuleReport, outside: ModuleReport): readonly string[] {
  const { module } = outside;
  if (!COMPLETE.includes(outside.ending)) {
    return [`${module}: ${outside.ending} outside`];
  }
  if (!COMPLETE.includes(inside.ending)) return [`${module}: ${inside.ending}`];
  if (inside.ending === "skipped" && outside.ending !== "skipped") return [`${module}: skipped`];
  const tests = inside.failed.filter((test) => !outside.failed.includes(test));
  const isWhole = inside.ending === "failed" && inside.failed.length === 0;
  return isWhole && outside.ending !== "failed" ? [`${module}: failed`] : tests;
}

/** The module that a difference belongs to. */
export function moduleOf(what: string): string {
  return /\btest_\w+/.exec(what)?.[0] ?? what;
}

/** What is wrong with a module's differences: each is one line, empty when all is as listed. */
export function judge(
  module: string,
  runs: readonly (readonly string[])[],
  listed: readonly ListedDifference[],
): readonly string[] {
  const own = listed.map(({ what }) => what).filter((what) => moduleOf(what) === module);
  const [first = []] = runs;
  // Once may be chance on a busy machine: a new difference is one of every run, a stale one of none.
  const constant = first.filter((what) => runs.every((run) => run.includes(what)));
  const isSeen = (what: string): boolean => runs.some((run) => run.includes(what));
  return [
    ...constant.filter((what) => !own.includes(what)).map((what) => `new: ${what}`),
    ...own.filter((what) => !isSeen(what)).map((what) => `no difference any more: ${what}`),
  ];
}
