// Each step of a set-up made to fail, one after the other: a filter around the whole server refuses
// the call that the step makes, to everybody or to one kind of process only. The error names the step
// and has a fix, and nothing is left behind.

import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compileFilter } from "../../src/sandbox/seccomp/compile-filter.ts";
import type { Answer, Rule, Rules } from "../../src/sandbox/seccomp/rule.ts";
import { archOf, type SyscallName } from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import { type HostNeeds, requireHost } from "../helpers/host.ts";
import { TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, type Left, takeSnapshot } from "./snapshot.ts";
import { ID_RANGE, makeDirs, PYTHON, warmUp } from "./test-engine.ts";

const host = requireHost({ sandbox: true, programs: [PYTHON] });
const arch = archOf(process.arch) ?? "x86_64";
const LAUNCHER = join(import.meta.dir, "../compat/under-outer.py");
const REFUSER = join(import.meta.dir, "refuse-for.py");
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
const where = (
  arg: 0 | 1 | 2 | 3,
  test: "equals" | "anyBit",
  value: number,
  answer: Answer = "EPERM",
): Rule => ({ check: { arg, test, values: [value], answer }, answer: "allow", why });
/** The same, for processes of one kind only. */
const forOneKind = (arg: 0 | 2, value: number): Rule => where(arg, "equals", value, "trap");
const call = (name: SyscallName): Rules => ({ [name]: refused });

// <linux/sched.h>, <linux/prctl.h>, <asm-generic/resource.h>
const CLONE_NEWUSER = 0x1000_0000;
const PR_SET_TIMERSLACK = 29;
const PR_SET_NO_NEW_PRIVS = 38;
const RLIMIT_NPROC = 6;
// <fcntl.h>, <sys/mman.h>, <asm-generic/ioctls.h>
const MAP_SHARED_ANONYMOUS = 0x21;
const PROT_NONE = 0;
const AT_EMPTY_PATH = 0x1000;
const TIOCSCTTY = 0x540e;
/** The id of programs inside. */
const PROGRAM = 1000;

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
  ["a guard for the stack of a clone", "arena", { mprotect: where(2, "equals", PROT_NONE) }],
  ["a read-only root", "read_only", { mount_setattr: where(2, "equals", AT_EMPTY_PATH) }],
  ["memory to share with programs", "ready", { mmap: where(3, "equals", MAP_SHARED_ANONYMOUS) }],
  ["the streams of a program", "stdio", { dup3: where(1, "equals", 0) }],
  ["the program's own id", "identity", { setresuid: where(0, "equals", PROGRAM) }],
];

/** The same for calls that others make too: refused to the first process inside, or to later ones. */
const FAULTS_OF: readonly (readonly [
  title: string,
  step: string,
  who: "server" | "first" | "later",
  rules: Rules,
  needs: HostNeeds,
])[] = [
  ["saying that ids are mapped", "go", "server", { write: forOneKind(2, 1) }, { ids: true }],
  ["the word that ids are mapped", "wait_map", "first", { read: forOneKind(2, 1) }, { ids: true }],
  [
    "its control group",
    "cgroup",
    "first",
    // Where the kernel puts the clone into its group, nothing is written.
    { write: forOneKind(2, 1), clone3: { answer: "ENOSYS", why } },
    { groups: true },
  ],
  ["a process for a program", "fork", "first", { clone: { answer: "trap", why } }, {}],
  ["a word to the server", "ready", "first", { sendmsg: { answer: "trap", why } }, {}],
  [
    "a program's control group",
    "exec_cgroup",
    "later",
    { write: forOneKind(2, 1) },
    { groups: true },
  ],
  ["a program's session", "session", "later", { setsid: { answer: "trap", why } }, {}],
  [
    "giving up privileges to a program",
    "no_new_privs",
    "later",
    { prctl: forOneKind(0, PR_SET_NO_NEW_PRIVS) },
    {},
  ],
];

/** What a server is started with besides a filter. */
interface Around {
  readonly launcher?: readonly string[];
  /** More arguments of the fixture. */
  readonly words?: readonly string[];
}

/** Python that becomes the program it is given. */
const EXEC = "import os,sys; os.execvp(sys.argv[1], sys.argv[1:])";

/** What is said of a failed step: its name, its fix, and that nothing of it is still counted. */
function expectStep(said: Readonly<Record<string, unknown>>, step: string): void {
  expect(said).toMatchObject({ step, errnoName: "EPERM" });
  expect(said).toMatchObject({ sandboxes: 0, reserved: { memMb: 0, pids: 0 } });
  expect(said["hint"]).toEqual(expect.stringMatching(/\w{3,}/));
}

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
  const under = async (
    rules: Rules,
    { launcher = [LAUNCHER, filter], words = [] }: Around = {},
  ): Promise<Readonly<Record<string, unknown>>> => {
    writeFileSync(filter, compileFilter({ ...ALLOWED, ...rules }, { arch, onTrap: "notify" }));
    const own = [process.execPath, ENGINE, dirs.run, dirs.data, `${ID_RANGE.base}`, ...words];
    const child = Bun.spawn([PYTHON, ...launcher, ...own], {
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
      expectStep(await under(rules), step);
    });
  }

  for (const [title, step, who, rules, needs] of FAULTS_OF) {
    requireHost(needs).test(`${title}, names ${step} and the fix`, async () => {
      expectStep(await under(rules, { launcher: [REFUSER, filter, who] }), step);
    });
  }

  host.test("nothing to one kind of process only, succeeds", async () => {
    const rules = { write: forOneKind(2, 1), read: forOneKind(2, 1) };
    const said = await under(rules, { launcher: [REFUSER, filter, "nobody"] });
    expect(said).toMatchObject({ step: "none", outcome: "exit 0" });
  });

  host.test("id maps, names id_map and the fix", async () => {
    // A user's process 1 writes its own, and first gives up groups: user_namespaces(7).
    const said = await (process.getuid?.() === 0
      ? under({}, { launcher: ["-c", EXEC, "setpriv", "--bounding-set=-setuid"] })
      : under({ write: where(2, "equals", "deny".length) }));
    expectStep(said, "id_map");
  });

  host.test("a controlling terminal, names session and the fix", async () => {
    const rules = { ioctl: where(1, "equals", TIOCSCTTY) };
    expectStep(await under(rules, { words: ["terminal"] }), "session");
  });

  host.test("locks, names the run directory and the fix", async () => {
    const said = await under(call("flock"));
    expect(said["message"]).toContain("Cannot use the run directory");
    expect(said["hint"]).toContain("CPRG_RUN_DIR");
  });
});
