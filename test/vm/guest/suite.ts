// Runs the sandbox suite on the machine it is on, one process for each file, and says of each test how
// it ended as soon as its file has. A file that hangs is killed and named; the others still run.
//
//   bun test/vm/guest/suite.ts --user root|user|self --report FILE [--files name,name] [--tests PATTERN]
//                              [--slowness N]
//
// As `user` root becomes one that it makes; as `self` the tests run as whoever runs this, with a home
// and a directory for temporary files of their own. PATTERN is what `bun test -t` takes, percent-encoded. N is the least that time limits are multiplied
// by, whatever is measured.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { release, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { parseJunit, type ReportLine, type TestReport } from "../report.ts";

/** The user of grounds without root. */
const USER_ID = 1000;
const FOLDER = "test/sandbox";
/** What starting Python takes at most on a machine that the time limits of the tests were made for. */
const REFERENCE_START_MS = 100;
const SLOWNESS_MOST = 20;
/** For one file, and for one of its tests, on a machine that is not slow. */
const FILE_TIMEOUT_MS = 3 * 60_000;
const TEST_TIMEOUT_MS = 60_000;
/** Looks at a group until it is empty, and the pause between two. */
const EMPTY_TRIES_MAX = 100;
const EMPTY_PAUSE_MS = 100;
const DELEGATED = "/sys/fs/cgroup/user";

const EXECUTABLE = "dist/cprg";
const COMMANDS: Readonly<Record<string, [readonly string[], (stdout: string) => boolean]>> = {
  "doctor finds every layer that is needed": [
    ["doctor", "--json"],
    (stdout) => (JSON.parse(stdout) as { ok: boolean }).ok,
  ],
  "runs a program": [["run", "-c", "print(6*7)"], (stdout) => stdout === "42\n"],
};

const { values } = parseArgs({
  options: {
    user: { type: "string", default: "root" },
    report: { type: "string", default: "/dev/stdout" },
    files: { type: "string", default: "" },
    tests: { type: "string", default: "" },
    slowness: { type: "string", default: "1" },
  },
});
const isUser = values.user === "user";
const say = (line: ReportLine): void => appendFileSync(values.report, `${JSON.stringify(line)}\n`);
const scratch = mkdtempSync(join(tmpdir(), "cprg-suite-"));
const slowness = measureSlowness();
let groups = 0;

say({
  type: "machine",
  kernel: release(),
  uid: isUser ? USER_ID : (process.getuid?.() ?? -1),
  cgroup: cgroupType(),
  slowness,
});
if (isUser) prepareUser();
const names = values.files.split(",").filter((name) => name !== "");
if (names.length === 0 || names.includes("executable")) {
  say({ type: "start", file: EXECUTABLE });
  say(runExecutable());
}
for (const file of testFiles()) {
  say({ type: "start", file });
  say(await runFile(file));
}
rmSync(scratch, { recursive: true, force: true });
say({ type: "end" });

function testFiles(): string[] {
  return readdirSync(FOLDER)
    .filter((name) => name.endsWith(".test.ts"))
    .filter((name) => names.length === 0 || names.includes(name.replace(/\.test\.ts$/, "")))
    .map((name) => `${FOLDER}/${name}`)
    .sort();
}

/** The median of five starts of Python, against what the tests assume. */
function measureSlowness(): number {
  // Read from the disk once, before anything waits for it.
  spawnSync("/usr/bin/node", ["--version"]);
  const starts = Array.from({ length: 5 }, () => {
    const startedMs = performance.now();
    spawnSync("/usr/bin/python3", ["-c", "pass"]);
    return performance.now() - startedMs;
  }).sort((left, right) => left - right);
  const factor = Math.ceil((starts[2] ?? 0) / REFERENCE_START_MS);
  return Math.min(SLOWNESS_MOST, Math.max(Number(values.slowness), factor));
}

function cgroupType(): string {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8");
  const isV1 = mounts.includes(" - cgroup ");
  const isV2 = mounts.includes(" - cgroup2 ");
  if (isV1 && isV2) return "hybrid";
  return isV2 ? "v2" : isV1 ? "v1" : "none";
}

/** A home and, on v2, a group to delegate from (cgroup-v2.rst, "Delegation"). */
function prepareUser(): void {
  for (const directory of [`/home/user-${USER_ID}`, `/run/user/${USER_ID}`]) {
    // The mode is for all that is made: what is above must stay passable.
    mkdirSync(dirname(directory), { recursive: true, mode: 0o755 });
    mkdirSync(directory, { mode: 0o700 });
    chownSync(directory, USER_ID, USER_ID);
  }
  chownSync(scratch, USER_ID, USER_ID);
  if (cgroupType() !== "v2") return;
  const controllers = "+memory +pids +cpu";
  writeFileSync("/sys/fs/cgroup/cgroup.subtree_control", controllers);
  mkdirSync(DELEGATED, { recursive: true });
  writeFileSync(join(DELEGATED, "cgroup.subtree_control"), controllers);
}

/** Root makes its groups by itself; so does nobody where nothing can be delegated. */
function groupForFile(): string | null {
  return isUser && cgroupType() === "v2" ? delegate() : null;
}

/** Makes a group that is the user's own, as a session manager does for a unit with Delegate=yes. */
function delegate(): string {
  groups += 1;
  const group = join(DELEGATED, `suite-${groups}`);
  mkdirSync(group);
  chownSync(group, USER_ID, USER_ID);
  for (const file of ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"]) {
    chownSync(join(group, file), USER_ID, USER_ID);
  }
  return group;
}

async function runFile(file: string): Promise<Extract<ReportLine, { type: "file" }>> {
  const startedMs = performance.now();
  const xml = join(scratch, `${file.replaceAll("/", "-")}.xml`);
  const group = groupForFile();
  const { code, isTimeout } = await runBunTest(file, xml, group);
  const all = existsSync(xml) ? parseJunit(readFileSync(xml, "utf8")) : null;
  const tests = all?.filter(isWanted) ?? null;
  return {
    type: "file",
    file,
    durationMs: Math.round(performance.now() - startedMs),
    tests: tests ?? [],
    problem: problemOf({ code, isTimeout, tests }) ?? (group === null ? null : takeBack(group)),
  };
}

/** What is not asked for is in the report as skipped, without a need (test/helpers/host.ts). */
function isWanted({ id, status }: TestReport): boolean {
  return values.tests === "" || status !== "skipped" || id.includes(" [needs ");
}

/** The executable itself on this ground: it says what the ground has, and runs a program. */
function runExecutable(): Extract<ReportLine, { type: "file" }> {
  const startedMs = performance.now();
  const problems: string[] = [];
  const tests = Object.entries(COMMANDS).map(([title, [args, isRight]]): TestReport => {
    const group = groupForFile();
    const own = [`${process.cwd()}/${EXECUTABLE}`, ...args];
    const [program = "", ...rest] = isUser ? asUser(own, group) : own;
    const ran = spawnSync(program, rest, {
      encoding: "utf8",
      timeout: TEST_TIMEOUT_MS * slowness,
      env: environment(),
    });
    console.log(`${EXECUTABLE} ${args.join(" ")}\n${ran.stdout}${ran.stderr}`);
    const isPassed = ran.status === 0 && isRight(ran.stdout);
    const left = group === null ? null : takeBack(group);
    if (left !== null) problems.push(`${args[0]} ${left}`);
    return { id: `${EXECUTABLE} > ${title}`, status: isPassed ? "passed" : "failed" };
  });
  const durationMs = Math.round(performance.now() - startedMs);
  const problem = problems.join("; ") || null;
  return { type: "file", file: EXECUTABLE, durationMs, tests, problem };
}

function problemOf(ran: {
  readonly code: number | null;
  readonly isTimeout: boolean;
  readonly tests: readonly TestReport[] | null;
}): string | null {
  if (ran.isTimeout) return `killed after ${(FILE_TIMEOUT_MS * slowness) / 1000} s`;
  if (ran.tests === null) return `left no report and exited with ${ran.code}`;
  if (ran.tests.length === 0) return "ran no test";
  const hasFailed = ran.tests.some(({ status }) => status === "failed");
  if (ran.code !== 0 && !hasFailed) return `exited with ${ran.code} without a failed test`;
  return null;
}

async function runBunTest(file: string, xml: string, group: string | null) {
  const own = [
    ...[process.execPath, "test", `./${file}`, `--timeout=${TEST_TIMEOUT_MS * slowness}`],
    ...["--reporter=junit", `--reporter-outfile=${xml}`],
    ...(values.tests === "" ? [] : ["-t", decodeURIComponent(values.tests)]),
  ];
  const command = isUser ? asUser(own, group) : own;
  const child = spawn(command[0] ?? "", command.slice(1), {
    stdio: ["ignore", "inherit", "inherit"],
    // A process group of its own, so that a timeout also ends what the tests started.
    detached: true,
    env: environment(),
  });
  let isTimeout = false;
  const timer = setTimeout(() => {
    isTimeout = true;
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  }, FILE_TIMEOUT_MS * slowness);
  const [code] = (await once(child, "exit")) as [number | null];
  clearTimeout(timer);
  return { code, isTimeout };
}

/** The command as the user, without groups or capabilities, in its own control group. */
function asUser(command: readonly string[], group: string | null): string[] {
  const enter = group === null ? "" : `echo $$ > ${group}/cgroup.procs && `;
  const user = `setpriv --reuid=${USER_ID} --regid=${USER_ID} --clear-groups --bounding-set=-all`;
  return ["sh", "-c", `${enter}exec ${user} "$@"`, "sh", ...command];
}

function environment(): Record<string, string> {
  const { HOME = "/root", TMPDIR } = process.env;
  const home = isUser ? `/home/user-${USER_ID}` : HOME;
  return {
    ...(TMPDIR === undefined ? {} : { TMPDIR }),
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: home,
    LANG: "C.UTF-8",
    CPRG_TEST_SLOWNESS: String(slowness),
    ...(isUser ? { XDG_RUNTIME_DIR: `/run/user/${USER_ID}` } : {}),
  };
}

/** Removes a delegated group; what the tests have left in it is a problem. */
function takeBack(group: string): string | null {
  // The kernel lets go of a process some time after its end was reported.
  for (let tries = 0; tries < EMPTY_TRIES_MAX && processesOf(group).length > 0; tries += 1) {
    Bun.sleepSync(EMPTY_PAUSE_MS);
  }
  const alive = processesOf(group);
  if (alive.length > 0) return `left processes in ${group}: ${alive.join(" ")}`;
  const left = readdirSync(group, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name !== "cprg-server")
    .map((entry) => entry.name);
  try {
    for (const name of ["cprg-server", ...left]) {
      if (existsSync(join(group, name))) rmdirSync(join(group, name));
    }
    rmdirSync(group);
  } catch (error) {
    return `left groups in ${group}: ${String(error)}`;
  }
  return left.length === 0 ? null : `left groups behind: ${left.join(" ")}`;
}

/** Processes in a group and in those beneath it, by name. */
function processesOf(group: string): string[] {
  const inside = readdirSync(group, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const pids = readFileSync(join(group, "cgroup.procs"), "utf8").split("\n").slice(0, -1);
  const own = pids.map((pid) => {
    const path = `/proc/${pid}/comm`;
    return `${existsSync(path) ? readFileSync(path, "utf8").trim() : "ended"}(${pid})`;
  });
  return [...own, ...inside.flatMap(({ name }) => processesOf(join(group, name)))];
}
