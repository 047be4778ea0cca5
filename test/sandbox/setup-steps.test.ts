// Each step of a set-up made to fail, one after the other: a filter around the whole server refuses
// the call that the step makes. The error names the step and has a fix, and nothing is left behind.

import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compileFilter } from "../../src/sandbox/seccomp/compile-filter.ts";
import type { Rule, Rules } from "../../src/sandbox/seccomp/rule.ts";
import { archOf, type SyscallName } from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import { requireHost } from "../helpers/host.ts";
import { TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, type Left, takeSnapshot } from "./snapshot.ts";
import { ID_RANGE, makeDirs, PYTHON, warmUp } from "./test-engine.ts";

const host = requireHost({ sandbox: true, programs: [PYTHON] });
const arch = archOf(process.arch) ?? "x86_64";
const LAUNCHER = join(import.meta.dir, "../compat/under-outer.py");
const ENGINE = join(import.meta.dir, "../fixtures/engine-that-fails.ts");

const why = "the step that is to fail";
const refused: Rule = { answer: "EPERM", why };
const ALLOWED: Rules = Object.fromEntries(
  Object.keys({ ...SYSCALLS_X86_64, ...SYSCALLS_AARCH64 }).map((name) => [
    name,
    { answer: "allow", why } satisfies Rule,
  ]),
);

/** The call is refused where an argument is this, or has this bit. */
const where = (arg: 0 | 1, test: "equals" | "anyBit", value: number): Rule => ({
  check: { arg, test, values: [value], answer: "EPERM" },
  answer: "allow",
  why,
});
const call = (name: SyscallName): Rules => ({ [name]: refused });

// <linux/sched.h>, <linux/prctl.h>, <asm-generic/resource.h>
const CLONE_NEWUSER = 0x1000_0000;
const PR_SET_TIMERSLACK = 29;
const PR_SET_NO_NEW_PRIVS = 38;
const RLIMIT_NPROC = 6;

/** What is refused, the step that it is, and the rules besides "everything is allowed". */
const FAULTS: readonly (readonly [title: string, step: string, rules: Rules])[] = [
  ["a socket to process 1", "descriptors", call("socketpair")],
  ["a pipe from process 1", "descriptors", call("pipe2")],
  [
    "a user namespace",
    "clone",
    { clone: where(0, "anyBit", CLONE_NEWUSER), clone3: { answer: "ENOSYS", why } },
  ],
  ["moving descriptors", "descriptors", call("dup3")],
  ["executing process 1", "exec_init", call("execveat")],
  ["becoming user 0 inside", "become_root", call("setresuid")],
  ["becoming group 0 inside", "become_root", call("setresgid")],
  ["all CPUs", "reset", call("sched_setaffinity")],
  ["a timer slack", "reset", { prctl: where(0, "equals", PR_SET_TIMERSLACK) }],
  ["a personality", "reset", call("personality")],
  ["a priority of input and output", "reset", call("ioprio_set")],
  ["a session", "reset", call("setsid")],
  ["a descriptor for signals", "reset", call("signalfd4")],
  ["the other namespaces", "unshare", call("unshare")],
  ["private mounts", "private", call("mount")],
  ["a bind", "mount", call("move_mount")],
  ["a read-only bind", "mount", call("mount_setattr")],
  ["a directory of the root", "mount", call("mkdirat")],
  ["a link of the root", "mount", call("symlinkat")],
  ["changing the root", "pivot", call("pivot_root")],
  ["letting go of the old root", "pivot", call("umount2")],
  ["a host name", "hostname", call("sethostname")],
  [
    "giving up privileges for good",
    "capabilities",
    { prctl: where(0, "equals", PR_SET_NO_NEW_PRIVS) },
  ],
  ["a resource limit", "rlimit", { prlimit64: where(1, "equals", RLIMIT_NPROC) }],
  ["a filter", "seccomp", call("seccomp")],
];

host.describe("a set-up in which the kernel refuses", () => {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  const filter = join(dirs.top, "filter");
  const seen: string[] = [];
  let before: Left;
  beforeAll(async () => {
    await warmUp(dirs);
    before = takeSnapshot(dirs, ID_RANGE);
  });
  afterEach(() => expectNothingLeft(before, () => takeSnapshot(dirs, ID_RANGE, seen)));
  afterAll(() => rmSync(dirs.top, { recursive: true, force: true }));

  /** What an engine says under a filter. */
  const under = async (rules: Rules): Promise<Readonly<Record<string, unknown>>> => {
    writeFileSync(filter, compileFilter({ ...ALLOWED, ...rules }, { arch, onTrap: "kill" }));
    const words = [process.execPath, ENGINE, dirs.run, dirs.data, `${ID_RANGE.base}`];
    const child = Bun.spawn([PYTHON, LAUNCHER, filter, ...words], {
      env: { PATH: "/usr/bin:/bin", HOME: dirs.top },
      stdout: "pipe",
      stderr: "inherit",
    });
    const said = JSON.parse(await child.stdout.text()) as Record<string, unknown>;
    expect(await child.exited).toBe(0);
    if (typeof said["instance"] === "string") seen.push(said["instance"]);
    return said;
  };

  host.test("nothing, succeeds", async () => {
    expect(await under({})).toMatchObject({ step: "none", outcome: "exit 0" });
  });

  for (const [title, step, rules] of FAULTS) {
    host.test(`${title}, names ${step} and the fix`, async () => {
      const said = await under(rules);
      expect(said).toMatchObject({ step, errnoName: "EPERM" });
      expect(said).toMatchObject({ sandboxes: 0, reserved: { memMb: 0, pids: 0 } });
      expect(said["hint"]).toEqual(expect.stringMatching(/\w{3,}/));
    });
  }

  host.test("locks, names the run directory and the fix", async () => {
    const said = await under(call("flock"));
    expect(said["message"]).toContain("Cannot use the run directory");
    expect(said["hint"]).toContain("CPRG_RUN_DIR");
  });
});
