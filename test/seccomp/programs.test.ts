// Real programs under the filter, without a listener: what is trapped would kill them.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { compileFilter } from "../../src/sandbox/seccomp/compile-filter.ts";
import { type ProfileName, profileRules } from "../../src/sandbox/seccomp/profile.ts";
import type { Rules } from "../../src/sandbox/seccomp/rule.ts";
import { archOf } from "../../src/sandbox/seccomp/syscall-table.ts";
import { requireHost } from "../helpers/host.ts";
import { compileC, makeScratch, type Scratch } from "./compile-c.ts";

/** On the PATH there may be shims; these are the host's own. */
const PATH = "/usr/bin:/bin";
const PYTHON = "/usr/bin/python3";
const NODE = "/usr/bin/node";
const BIN = resolve("node_modules/.bin");
const programs = join(import.meta.dir, "programs");

/** What a program did. */
interface Ended {
  readonly lines: readonly string[];
  readonly errors: string;
  readonly code: number | null;
  readonly signal: string | number | undefined;
}

const host = requireHost({ linux: true, programs: ["cc", PYTHON, NODE, "perl", "git", "bash"] });
const hasNumpy = Bun.spawnSync([PYTHON, "-c", "import numpy"]).exitCode === 0;
// No program has the name of a package, so a missing one reads "needs python3-numpy".
const numpyHost = requireHost({
  linux: true,
  programs: ["cc", ...(hasNumpy ? [] : ["python3-numpy"])],
});

let scratch: Scratch;
let loader = "";
let runs = 0;

beforeAll(() => {
  if (host.missing.length > 0) return;
  scratch = makeScratch();
  loader = compileC("under-filter", scratch.path);
});
afterAll(() => scratch?.remove());

/** Runs a program in a directory of its own under a profile's filter, or under other rules. */
function run(profile: ProfileName | Rules, command: readonly string[]): Ended {
  const directory = join(scratch.path, `${++runs}`);
  mkdirSync(directory);
  const rules = typeof profile === "string" ? profileRules(profile) : profile;
  const arch = archOf(process.arch) ?? "x86_64";
  const filter = join(directory, "..", `${runs}.bpf`);
  writeFileSync(filter, compileFilter(rules, { arch, onTrap: "kill" }));
  const ended = Bun.spawnSync([loader, filter, ...command], {
    cwd: directory,
    stdin: null,
    env: { PATH, HOME: directory, TMPDIR: directory, LC_ALL: "C.UTF-8" },
  });
  return {
    lines: ended.stdout.toString().split("\n").slice(0, -1),
    errors: ended.stderr.toString(),
    code: ended.exitCode,
    signal: ended.signalCode,
  };
}

/** Ended well, with these lines and nothing to complain of. */
function well(...lines: string[]): Ended {
  return { lines, errors: "", code: 0, signal: undefined };
}

host.describe("under the filter", () => {
  test("python: threads, processes, programs, asyncio, files, signals, sockets", () => {
    expect(run("python", [PYTHON, join(programs, "everyday.py")])).toEqual(
      well("threads", "processes", "programs", "loop", "files", "signals", "sockets", "limits"),
    );
  });

  test("node: workers, files, programs, sockets, its thread pool", () => {
    expect(run("node", [NODE, join(programs, "everyday.cjs")])).toEqual(
      well("workers", "files", "programs", "sockets", "threadpool"),
    );
  });

  test("bun: its compiler, workers, files, programs, sockets", () => {
    expect(run("javascript", [join(BIN, "bun"), join(programs, "everyday.ts")])).toEqual(
      well("compiler", "workers", "files", "programs", "sockets"),
    );
  });

  test("bash: pipes, jobs, job control, files", () => {
    expect(run("bash", ["bash", join(programs, "everyday.sh")])).toEqual(
      well("pipes", "trapped", "jobs", "control", "100000", "files"),
    );
  });

  test("perl: fork, programs, sockets", () => {
    expect(run("argv", ["perl", join(programs, "everyday.pl")])).toEqual(
      well("fork", "programs", "sockets"),
    );
  });

  test("git: init, commit, log, gc, clone", () => {
    const script = `
      export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
      git init -q . && echo x >file && git add file && git commit -qm first
      git -c gc.auto=0 gc -q && git clone -q . copy && git -C copy log --format=%s && git fsck --strict`;
    expect(run("argv", ["bash", "-c", script])).toEqual(well("first"));
  });

  test.each([
    { title: "dynamic", flags: "" },
    { title: "static", flags: "-static" },
  ])("gcc: compiles a threaded $title program, which runs", ({ flags }) => {
    const source = join(programs, "everyday.c");
    const script = `cc -O2 -pthread ${flags} -o everyday ${source} && ./everyday`;
    expect(run("argv", ["bash", "-c", script])).toEqual(well("compiled"));
  });

  test("a program of the Go runtime", () => {
    const script = `printf 'syntax = "proto3";message M{}' >m.proto && ${BIN}/buf format m.proto`;
    expect(run("argv", ["bash", "-c", script])).toEqual(
      well('syntax = "proto3";', "", "message M {}"),
    );
  });

  test("a call that a program cannot do without is missed", () => {
    const rules: Rules = { ...profileRules("python"), futex: { answer: "trap", why: "a trial" } };
    const ended = run(rules, [PYTHON, join(programs, "everyday.py")]);
    expect(ended.signal).toBe("SIGSYS");
    expect(ended.lines).toEqual([]);
  });
});

numpyHost.describe("under the filter", () => {
  test("numpy: with BLAS, in several processes", () => {
    expect(run("python", [PYTHON, join(programs, "arrays.py")])).toEqual(
      well("[True, True, True, True]", "8.0"),
    );
  });
});
