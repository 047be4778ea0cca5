// `make test-vm`: the sandbox suite on other grounds than this machine's own. Builds the disks, boots
// one virtual machine after the other by emulation, and judges what each says.
//
//   bun test/vm/run.ts                            the grounds of DEFAULT_GROUNDS
//   bun test/vm/run.ts all                        and of ALL_GROUNDS
//   bun test/vm/run.ts here-root here-user        these grounds
//   bun test/vm/run.ts v2-root --files oom,cgroup these files only; keeps no result
//   bun test/vm/run.ts v2-root --files attack --tests identity  of these the tests that match
//
// The last line on stdout is always `N passed, N failed, N skipped`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { rootlessGround } from "../rootless-ground.ts";
import { CACHE, fetchBun } from "./fetch-bun.ts";
import { ALL_GROUNDS, DEFAULT_GROUNDS, type Ground, groundNamed } from "./grounds.ts";
import { type Built, buildDisks } from "./image.ts";
import { judge, type Verdict } from "./judge.ts";
import { type Ended, runMachine } from "./machine.ts";
import { type Arch, fetchPackages } from "./packages.ts";
import { parseReport, type ReportLine } from "./report.ts";

const OWN_ARCH = process.arch === "arm64" ? "aarch64" : "x86_64";
const LATEST = join(import.meta.dir, "results/latest.json");

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { files: { type: "string", default: "" }, tests: { type: "string", default: "" } },
});

// A machine that runs is killed when this process exits (machine.ts).
process.on("SIGINT", () => process.exit(130));
process.on("SIGTERM", () => process.exit(143));

process.exitCode = await main();

async function main(): Promise<number> {
  const names = groundsOf(positionals);
  const grounds = names.map(groundNamed);
  mkdirSync(CACHE, { recursive: true });
  const verdicts: Verdict[] = [];
  for (const ground of grounds) {
    console.log(`\n== ${ground.name}: ${ground.describes} ==`);
    const ended = ground.place === "vm" ? await boot(ground) : await runHere(ground);
    // A group that is skipped whole is reported whole, whichever of its tests were asked for.
    const verdict = judge(ground, ended, values.tests === "" ? verdicts : []);
    print(verdict, ended);
    verdicts.push(verdict);
    if (values.files === "" && values.tests === "") keep(verdicts);
  }
  console.log("\n== summary ==");
  for (const verdict of verdicts) console.log(summaryOf(verdict));
  const sum = (count: (verdict: Verdict) => number): number =>
    verdicts.reduce((total, verdict) => total + count(verdict), 0);
  const failed = sum((verdict) => verdict.failed);
  console.log(
    `${sum(({ passed }) => passed)} passed, ${failed} failed, ${sum(({ skipped }) => skipped)} skipped`,
  );
  return failed === 0 ? 0 : 1;
}

function groundsOf(words: readonly string[]): readonly string[] {
  if (words.length === 0) return DEFAULT_GROUNDS;
  return words.length === 1 && words[0] === "all" ? ALL_GROUNDS : words;
}

function boot(ground: Ground): Promise<Ended> {
  const packages = fetchPackages(ground.arch, CACHE);
  const built = builtFor(ground.arch);
  const disks = buildDisks(ground.arch, { packages, built, cache: CACHE });
  const { tests } = values;
  const files = filesOf(ground);
  return runMachine(ground, { disks, folder: CACHE, files, tests, onLine: progress });
}

/** Names between commas; empty: all. */
function filesOf({ files = [] }: Ground): string {
  return values.files === "" ? files.join(",") : values.files;
}

/** What make has built, and the runtime that runs the tests. */
function builtFor(arch: Arch): Built {
  const isOwn = arch === OWN_ARCH;
  return {
    bun: isOwn ? process.execPath : fetchBun(arch, join(CACHE, arch)),
    executable: isOwn ? "dist/cprg" : `dist/${arch}/cprg`,
    ffi: `dist/ffi/${arch}`,
  };
}

/**
 * The same runner on this machine: what it reports is compared like any other. As a user that owns
 * nothing here where the ground is one, in the way of `make test-rootless`.
 */
async function runHere(ground: Ground): Promise<Ended> {
  const startedMs = performance.now();
  const scratch = mkdtempSync(join(tmpdir(), "cprg-here-"));
  try {
    const isUser = ground.user === "user";
    const reportPath = join(scratch, isUser ? "rootless/report" : "report");
    const script = join(import.meta.dir, "guest/suite.ts");
    const own = [
      ...[process.execPath, script, "--user", "self", "--report", reportPath],
      ...["--files", filesOf(ground), "--tests", encodeURIComponent(values.tests)],
    ];
    const { command, ...options } = isUser
      ? rootlessGround(own, { root: process.cwd(), scratch })
      : { command: own };
    const [program = "", ...words] = command;
    const child = spawn(program, words, { ...options, stdio: ["ignore", "inherit", "inherit"] });
    const [code] = (await once(child, "exit")) as [number | null];
    const lines = existsSync(reportPath) ? parseReport(readFileSync(reportPath, "utf8")) : [];
    for (const line of lines) progress(line);
    const problem = lines.at(-1)?.type === "end" ? null : `ended with ${code}`;
    const durationMs = performance.now() - startedMs;
    return { lines, durationMs, problem, consolePath: "the output above" };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function progress(line: ReportLine): void {
  if (line.type === "machine") {
    console.log(
      `kernel ${line.kernel}, uid ${line.uid}, cgroup ${line.cgroup}, time limits x${line.slowness}`,
    );
  }
  if (line.type !== "file") return;
  const failed = line.tests.filter(({ status }) => status === "failed").length;
  const rest = failed === 0 && line.problem === null ? "" : `, ${failed} failed`;
  const seconds = (line.durationMs / 1000).toFixed(1);
  console.log(`${line.file}: ${line.tests.length} tests${rest} (${seconds} s)`);
}

function print(verdict: Verdict, ended: Ended): void {
  for (const { id, status } of verdict.tests) console.log(`(${status}) ${id}`);
  for (const problem of verdict.problems) console.log(`(problem) ${problem}`);
  if (verdict.failed > 0) console.log(`see ${ended.consolePath}`);
}

function summaryOf({ ground, kernel, uid, cgroup, ...counts }: Verdict): string {
  const minutes = (counts.durationMs / 60_000).toFixed(1);
  return `${ground}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped (${minutes} min; kernel ${kernel}, uid ${uid}, cgroup ${cgroup})`;
}

/** Replaces the results of the grounds that ran; those of others stay. */
function keep(verdicts: readonly Verdict[]): void {
  const before = existsSync(LATEST)
    ? (JSON.parse(readFileSync(LATEST, "utf8")) as Record<string, unknown>)
    : {};
  const now = verdicts.map(({ ground, tests: _, problems, ...counts }) => {
    return [ground, { ...counts, problems: problems.length }] as const;
  });
  mkdirSync(join(import.meta.dir, "results"), { recursive: true });
  const all = { ...before, ...Object.fromEntries(now) };
  writeFileSync(LATEST, `${JSON.stringify(all, null, 2)}\n`);
}
