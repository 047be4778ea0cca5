// Runs the test suites in order, one `bun test` each, and judges every one by its exit code AND its
// JUnit report: `bun test` alone can be green with a file missing from the report, or without one.
//
//   bun test/run.ts                  every suite
//   bun test/run.ts unit arch        these suites
//   bun test/run.ts --write-floor    every suite; if green, keeps the counts as the new floor
//
// The last line on stdout is always `N passed, N failed, N skipped`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { rootlessGround } from "./rootless-ground.ts";

interface Suite {
  readonly name: string;
  readonly folder: string;
  /** Bound for the whole suite. */
  readonly timeoutMs: number;
  /** Bound for each of its tests that sets none of its own. */
  readonly testTimeoutMs: number;
  /** Runs as a user that is nobody on this host; as this one where the runner is no root. */
  readonly isRootless?: true;
}

interface Result {
  readonly name: string;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly durationMs: number;
  /** What is wrong beyond single failed tests. Each counts as one failure. */
  readonly problems: readonly string[];
}

interface Report {
  readonly tests: number;
  readonly failures: number;
  readonly skipped: number;
  /** Skipped tests that test/allowed-skips.json does not name. */
  readonly unexcusedSkips: readonly string[];
}

interface AllowedSkips {
  readonly needs: Record<string, string>;
  readonly tests: Record<string, string>;
}

const second = 1000;
const minute = 60 * second;
const totalTimeoutMs = 60 * minute;

/** In order of running, the slowest last. A suite starts to count once its folder exists. */
const suites: readonly Suite[] = [
  { name: "unit", folder: "test/unit", timeoutMs: 3 * minute, testTimeoutMs: 10 * second },
  { name: "arch", folder: "test/arch", timeoutMs: 2 * minute, testTimeoutMs: 20 * second },
  { name: "contract", folder: "test/contract", timeoutMs: 10 * minute, testTimeoutMs: 30 * second },
  { name: "store", folder: "test/store", timeoutMs: 10 * minute, testTimeoutMs: 30 * second },
  { name: "jobs", folder: "test/jobs", timeoutMs: 5 * minute, testTimeoutMs: 30 * second },
  { name: "bridge", folder: "test/bridge", timeoutMs: 10 * minute, testTimeoutMs: 120 * second },
  { name: "worker", folder: "test/worker", timeoutMs: 20 * minute, testTimeoutMs: 60 * second },
  {
    name: "control-plane",
    folder: "test/control-plane",
    timeoutMs: 10 * minute,
    testTimeoutMs: 60 * second,
  },
  { name: "chaos", folder: "test/chaos", timeoutMs: 15 * minute, testTimeoutMs: 300 * second },
  { name: "interop", folder: "test/interop", timeoutMs: 20 * minute, testTimeoutMs: 120 * second },
  { name: "model", folder: "test/model", timeoutMs: 10 * minute, testTimeoutMs: 120 * second },
  { name: "sim", folder: "test/sim", timeoutMs: 10 * minute, testTimeoutMs: 600 * second },
  { name: "http", folder: "test/http", timeoutMs: 10 * minute, testTimeoutMs: 30 * second },
  { name: "ffi", folder: "test/ffi", timeoutMs: 15 * minute, testTimeoutMs: 120 * second },
  { name: "seccomp", folder: "test/seccomp", timeoutMs: 10 * minute, testTimeoutMs: 120 * second },
  { name: "sandbox", folder: "test/sandbox", timeoutMs: 15 * minute, testTimeoutMs: 60 * second },
  { name: "compat", folder: "test/compat", timeoutMs: 15 * minute, testTimeoutMs: 120 * second },
  {
    name: "rootless",
    folder: "test/sandbox",
    timeoutMs: 15 * minute,
    testTimeoutMs: 60 * second,
    isRootless: true,
  },
  { name: "examples", folder: "test/examples", timeoutMs: 5 * minute, testTimeoutMs: 60 * second },
  { name: "e2e", folder: "test/e2e", timeoutMs: 45 * minute, testTimeoutMs: 60 * second },
];

const root = process.cwd();
const floorPath = join(root, "test/floor.json");
const mustRun = process.env["CPRG_TEST_MUST_RUN"] === "1";

/** The process group of the suite that runs now, killed when the runner is told to stop. */
let runningGroup: number | undefined;

for (const [signal, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  process.on(signal, () => {
    killGroup(runningGroup);
    process.exit(code);
  });
}

process.exitCode = await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<number> {
  const writesFloor = args.includes("--write-floor");
  const names = args.filter((argument) => argument !== "--write-floor");
  const floor = readJson<Record<string, number>>(floorPath, {});
  const selected = names.length === 0 ? findPresent(floor) : names.map(findByName);

  const results: Result[] = names.length === 0 ? findUnlisted() : [];
  const scratch = mkdtempSync(join(tmpdir(), "cprg-test-"));
  try {
    const stopAt = performance.now() + totalTimeoutMs;
    for (const suite of selected) {
      const budgetMs = Math.min(suite.timeoutMs, stopAt - performance.now());
      const leastTests = writesFloor ? 1 : (floor[suite.name] ?? 1);
      results.push(await runSuite(suite, join(scratch, `${suite.name}.xml`), budgetMs, leastTests));
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }

  const failed = sum(results, (result) => result.failed);
  if (writesFloor && failed === 0) {
    const counts = results.map((result) => [result.name, result.passed + result.skipped] as const);
    const raised = { ...floor, ...Object.fromEntries(counts) };
    writeFileSync(floorPath, `${JSON.stringify(raised, null, 2)}\n`);
  }
  printSummary(results);
  return failed === 0 && results.length > 0 ? 0 : 1;
}

function findPresent(floor: Record<string, number>): Suite[] {
  return suites.filter((suite) => existsSync(join(root, suite.folder)) || suite.name in floor);
}

function findByName(name: string): Suite {
  const suite = suites.find((candidate) => candidate.name === name);
  if (suite === undefined) {
    throw new Error(`No suite "${name}": one of ${suites.map((each) => each.name).join(", ")}`);
  }
  return suite;
}

/** A folder with tests that the table does not name would never run. */
function findUnlisted(): Result[] {
  const listed = new Set(suites.map((suite) => suite.folder));
  return readdirSync(join(root, "test"), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !listed.has(`test/${entry.name}`))
    .filter((entry) => holdsTests(join(root, "test", entry.name)))
    .map((entry) => emptyResult(entry.name, ["has tests but is not in the table of test/run.ts"]));
}

function holdsTests(folder: string): boolean {
  return readdirSync(folder, { recursive: true }).some((path) => /\.test\.tsx?$/.test(`${path}`));
}

async function runSuite(
  suite: Suite,
  reportPath: string,
  budgetMs: number,
  leastTests: number,
): Promise<Result> {
  console.log(`\n== ${suite.name} ==`);
  if (budgetMs <= 0) {
    return announce(emptyResult(suite.name, ["not started: the time for all suites is used up"]));
  }
  const startedAt = performance.now();
  const exit = await runBunTest(suite, reportPath, budgetMs);
  const durationMs = performance.now() - startedAt;

  const report = readReport(reportPath);
  const unexcused = mustRun ? (report?.unexcusedSkips ?? []) : [];
  const problems = findProblems(exit, report, leastTests, budgetMs);
  for (const name of unexcused) console.log(`  skipped, but CPRG_TEST_MUST_RUN is set: ${name}`);
  return announce({
    name: suite.name,
    passed: report === undefined ? 0 : report.tests - report.failures - report.skipped,
    failed: (report?.failures ?? 0) + unexcused.length + problems.length,
    skipped: (report?.skipped ?? 0) - unexcused.length,
    durationMs,
    problems,
  });
}

type Exit = { readonly code: number | null; readonly isTimeout: boolean };

async function runBunTest(suite: Suite, reportPath: string, budgetMs: number): Promise<Exit> {
  const command = [
    process.execPath,
    "test",
    `./${suite.folder}/`,
    `--timeout=${suite.testTimeoutMs}`,
    "--reporter=junit",
    `--reporter-outfile=${reportPath}`,
  ];
  const ground = suite.isRootless
    ? rootlessGround(command, { root, scratch: dirname(reportPath) })
    : { command };
  const [program = "", ...args] = ground.command;
  // A process group of its own, so that a timeout also ends what the tests started.
  const child = spawn(program, args, {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
    detached: true,
    ...("env" in ground ? { env: ground.env } : {}),
  });
  runningGroup = child.pid;
  let isTimeout = false;
  const timer = setTimeout(() => {
    isTimeout = true;
    killGroup(child.pid);
  }, budgetMs);
  const [code] = (await once(child, "exit")) as [number | null];
  clearTimeout(timer);
  runningGroup = undefined;
  return { code, isTimeout };
}

function killGroup(leader: number | undefined): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // The group has ended by itself.
  }
}

function findProblems(
  exit: Exit,
  report: Report | undefined,
  leastTests: number,
  budgetMs: number,
): string[] {
  const problems: string[] = [];
  if (exit.isTimeout) {
    problems.push(`killed after ${formatSeconds(budgetMs)}`);
  } else if (exit.code !== 0 && (report === undefined || report.failures === 0)) {
    const how = exit.code === null ? "was killed by a signal" : `exited with ${exit.code}`;
    problems.push(`${how} without a failed test: a file did not load, or an error escaped`);
  }
  if (report === undefined) {
    problems.push("left no JUnit report");
  } else if (report.tests === 0) {
    problems.push("ran no test");
  } else if (report.tests < leastTests) {
    problems.push(`has ${report.tests} tests, fewer than the ${leastTests} of test/floor.json`);
  }
  return problems;
}

function readReport(path: string): Report | undefined {
  if (!existsSync(path)) return undefined;
  const xml = readFileSync(path, "utf8");
  const totals = /<testsuites\b[^>]*>/.exec(xml)?.[0];
  if (totals === undefined || !xml.trimEnd().endsWith("</testsuites>")) return undefined;
  const count = (name: string): number =>
    Number(new RegExp(`\\b${name}="(\\d+)"`).exec(totals)?.[1] ?? Number.NaN);
  const report = {
    tests: count("tests"),
    failures: count("failures"),
    skipped: count("skipped"),
    unexcusedSkips: findUnexcusedSkips(xml),
  };
  return Number.isNaN(report.tests + report.failures + report.skipped) ? undefined : report;
}

function findUnexcusedSkips(xml: string): string[] {
  const allowed = readJson<AllowedSkips>(join(root, "test/allowed-skips.json"), {
    needs: {},
    tests: {},
  });
  const skipped =
    /<testcase name="([^"]*)" classname="([^"]*)"[^>]* file="([^"]*)"[^>]*>\s*<skipped/g;
  const unexcused: string[] = [];
  for (const [, name = "", group = "", file = ""] of xml.matchAll(skipped)) {
    const title = `${unescapeXml(file)} > ${unescapeXml(name)}`;
    // The title ends so when requireHost() of test/helpers/host.ts skipped it.
    const needs = /\[needs ([^\]]+)\]/.exec(`${name} ${group}`)?.[1]?.split(", ");
    const isExcused = needs?.every((need) => Object.hasOwn(allowed.needs, need)) ?? false;
    if (!isExcused && !Object.hasOwn(allowed.tests, title)) unexcused.push(title);
  }
  return unexcused;
}

function unescapeXml(text: string): string {
  return text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&apos;", "'")
    .replaceAll("&amp;", "&");
}

function readJson<T>(path: string, fallback: T): T {
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as T) : fallback;
}

function emptyResult(name: string, problems: readonly string[]): Result {
  return { name, passed: 0, failed: problems.length, skipped: 0, durationMs: 0, problems };
}

function announce(result: Result): Result {
  console.log(formatResult(result));
  return result;
}

function printSummary(results: readonly Result[]): void {
  console.log("\n== summary ==");
  for (const result of results) console.log(formatResult(result));
  console.log(
    formatCounts({
      passed: sum(results, (result) => result.passed),
      failed: sum(results, (result) => result.failed),
      skipped: sum(results, (result) => result.skipped),
    }),
  );
}

function formatResult(result: Result): string {
  const line = `${result.name}: ${formatCounts(result)} (${formatSeconds(result.durationMs)})`;
  return [line, ...result.problems.map((problem) => `  ${result.name} ${problem}`)].join("\n");
}

function formatCounts(counts: Pick<Result, "passed" | "failed" | "skipped">): string {
  return `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`;
}

function formatSeconds(durationMs: number): string {
  return `${(durationMs / second).toFixed(1)} s`;
}

function sum<T>(items: readonly T[], measure: (item: T) => number): number {
  return items.reduce((total, item) => total + measure(item), 0);
}
