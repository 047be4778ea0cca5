// CPython's own regression tests, in a sandbox and outside it. What differs is listed, with a reason.
// `make test` runs a sample; `make test-cpython` sets CPRG_CPYTHON=full, which runs all of them.

import { beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { requireHost } from "../helpers/host.ts";
import { PYTHON, useEngine } from "../sandbox/test-engine.ts";
import { type Pair, type RunTimes, runBothSides } from "./cpython/batches.ts";
import { differencesOf, judge, moduleOf } from "./cpython/compare.ts";
import { FULL_MODULES, SAMPLE_MODULES } from "./cpython/modules.ts";
import { insideOf, outside } from "./cpython/sides.ts";
import { DIFFERENCES, DIFFERENCES_MAX } from "./cpython-differences.ts";

const TESTSUITE = "/usr/lib/python3.11/test/test_os.py";
const host = requireHost({
  root: true,
  userns: true,
  cgroup: true,
  // No program has the name of a package, so a missing one reads "needs libpython3.11-testsuite".
  programs: [PYTHON, ...(existsSync(TESTSUITE) ? [] : ["libpython3.11-testsuite"])],
});

const isFull = process.env["CPRG_CPYTHON"] === "full";
const MODULES = isFull ? FULL_MODULES : SAMPLE_MODULES;
const TIMES: RunTimes = isFull
  ? { each: 230, all: 60, run: 3000 }
  : { each: 100, all: 60, run: 360 };
/** What a second look at the modules that differ may take, beyond the first. */
const AGAIN_MODULES_MAX = 40;
const HOOK_TIMEOUT_MS = (2 * TIMES.run + 600) * 1000;
/** What "at least 300 modules" counts: those whose tests ran outside. */
const FULL_MODULES_LEAST = 300;

test("the list of differences is short, gives reasons, and names modules that run", () => {
  expect(DIFFERENCES.length).toBeLessThanOrEqual(DIFFERENCES_MAX);
  for (const { what, reason } of DIFFERENCES) {
    expect(FULL_MODULES).toContain(moduleOf(what));
    expect(reason.length).toBeGreaterThan(20);
  }
  expect(new Set(DIFFERENCES.map(({ what }) => what)).size).toBe(DIFFERENCES.length);
  for (const module of SAMPLE_MODULES) expect(FULL_MODULES).toContain(module);
});

host.describe("CPython's tests inside", () => {
  const bench = useEngine();
  let pairs: ReadonlyMap<string, Pair>;
  let again: ReadonlyMap<string, Pair>;

  const problems = (module: string): readonly string[] => {
    const runs = [pairs, again].flatMap((each) => {
      const pair = each.get(module);
      return pair === undefined ? [] : [differencesOf(pair.inside, pair.outside)];
    });
    return judge(module, runs, DIFFERENCES);
  };

  beforeAll(async () => {
    const sides = { inside: insideOf(bench), outside };
    again = new Map();
    pairs = await runBothSides(MODULES, sides, TIMES);
    const odd = MODULES.filter((module) => problems(module).length > 0);
    if (odd.length <= AGAIN_MODULES_MAX) again = await runBothSides(odd, sides, TIMES);
  }, HOOK_TIMEOUT_MS);

  test.each(MODULES.map((module) => ({ module })))("$module", ({ module }) => {
    const found = problems(module);
    const text = found.length === 0 ? "" : pairs.get(module)?.inside.text;
    expect({ found, text }).toEqual({ found: [], text: "" });
  });

  test("enough modules run", () => {
    const ran = [...pairs.values()].filter(({ outside }) => outside.count > 0);
    const count = (side: "inside" | "outside"): number =>
      ran.reduce((sum, pair) => sum + pair[side].count, 0);
    console.log(
      `${ran.length} modules, ${count("inside")} tests inside, ${count("outside")} outside`,
    );
    expect(ran.length).toBeGreaterThanOrEqual(isFull ? FULL_MODULES_LEAST : 60);
    // A test that does not start inside is a test that is missed there.
    expect(count("inside")).toBeGreaterThan(0.99 * count("outside"));
  });
});
