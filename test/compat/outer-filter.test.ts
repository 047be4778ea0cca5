// The executable under a system call filter of somebody else's, as in a container or a hardened
// service: it works, or names what it lacks and how to get it. Nothing runs without its layers.

import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compileFilter } from "../../src/sandbox/seccomp/compile-filter.ts";
import type { Rule, Rules } from "../../src/sandbox/seccomp/rule.ts";
import { archOf, type SyscallName } from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import { call, type Ended, makeHome } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";
import { layerOf } from "./doctor-report.ts";

const PYTHON = "/usr/bin/python3";
const host = requireHost({ root: true, userns: true, cgroup: true, programs: [PYTHON] });

const LAUNCHER = join(import.meta.dir, "under-outer.py");
const arch = archOf(process.arch) ?? "x86_64";

/** CLONE_NEW* of <linux/sched.h>. */
const CLONE_NEW_ANY = 0x7e02_0080;
const PR_SET_SECCOMP = 22;

const why = "the outer filter";
const refuse = (names: readonly SyscallName[]): Rules =>
  Object.fromEntries(names.map((name) => [name, { answer: "EPERM", why } satisfies Rule]));
const words = (text: string): readonly SyscallName[] => text.trim().split(/\s+/) as SyscallName[];

/** An outer filter that lets everything through. */
const ALL: Rules = Object.fromEntries(
  Object.keys({ ...SYSCALLS_X86_64, ...SYSCALLS_AARCH64 }).map((name) => [
    name,
    { answer: "allow", why } satisfies Rule,
  ]),
);

/** What Docker's default profile refuses to a container without further capabilities. */
const DOCKER: Rules = {
  ...ALL,
  ...refuse(
    words(`
      acct add_key bpf delete_module fanotify_init finit_module init_module io_uring_enter
      io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl
      open_by_handle_at perf_event_open process_madvise quotactl reboot request_key settimeofday
      swapoff swapon userfaultfd vhangup`),
  ),
  clone3: { answer: "ENOSYS", why },
};

/** What it refuses besides, unless the container has CAP_SYS_ADMIN. */
const NO_NAMESPACES: Rules = {
  ...refuse(
    words(`
      fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root setns
      umount2 unshare`),
  ),
  clone: {
    check: { arg: 0, test: "anyBit", values: [CLONE_NEW_ANY], answer: "EPERM" },
    answer: "allow",
    why,
  },
  clone3: { answer: "ENOSYS", why },
};

const NO_FILTERS: Rules = {
  ...refuse(["seccomp"]),
  prctl: {
    check: { arg: 0, test: "equals", values: [PR_SET_SECCOMP], answer: "EPERM" },
    answer: "allow",
    why,
  },
};

const VIOLATION = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))";

host.describe("under an outer filter", () => {
  let scratch = "";
  beforeAll(() => {
    scratch = mkdtempSync(join(tmpdir(), "cprg-outer-"));
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));

  const run = async (rules: Rules, words: readonly string[], flags: readonly string[] = []) => {
    using home = makeHome();
    const filter = join(scratch, "filter");
    writeFileSync(filter, compileFilter(rules, { arch, onTrap: "kill" }));
    return await call(words, { ...home, shell: [PYTHON, LAUNCHER, filter, ...flags] });
  };

  /** Nothing ran: the error has a message, and a hint that says what to do. */
  const expectNamed = (ended: Ended): void => {
    expect(ended).toMatchObject({ code: 125, out: "" });
    expect(ended.err).toMatch(/^cprg run: .+$/m);
    expect(ended.err).toMatch(/^ +hint: .+$/m);
  };

  for (const { title, rules, flags } of [
    { title: "that allows everything", rules: ALL, flags: [] },
    { title: "that has the listener already", rules: ALL, flags: ["--listen"] },
    { title: "like Docker's, with the calls of CAP_SYS_ADMIN", rules: DOCKER, flags: [] },
  ]) {
    host.test(`${title}: programs run, and a violation is fatal without a name`, async () => {
      expect(await run(rules, ["run", "-c", "print(6*7)"], flags)).toEqual({
        code: 0,
        out: "42\n",
        err: "",
      });
      const ended = await run(rules, ["run", "--json", "-c", VIOLATION], flags);
      expect(JSON.parse(ended.out)).toMatchObject({
        status: "failed",
        reason: "seccomp_violation",
        stdout: "",
      });
      const doctor = await run(rules, ["doctor", "--json"], flags);
      expect(doctor.code).toBe(0);
      expect(layerOf(doctor.out, "seccomp")).toMatchObject({
        ok: false,
        required: false,
        fix: expect.stringMatching(/./),
      });
    });
  }

  for (const { title, rules } of [
    { title: "that refuses namespaces and mounts", rules: { ...ALL, ...NO_NAMESPACES } },
    { title: "like Docker's default", rules: { ...DOCKER, ...NO_NAMESPACES } },
    { title: "that refuses filters", rules: { ...ALL, ...NO_FILTERS } },
  ]) {
    host.test(`${title}: no program runs, and what is missing is named with its fix`, async () => {
      expectNamed(await run(rules, ["run", "-c", "print(6*7)"]));
      const doctor = await run(rules, ["doctor", "--json"]);
      expect(doctor.code).toBe(1);
      expect(layerOf(doctor.out, "sandbox")).toMatchObject({
        ok: false,
        required: true,
        fix: expect.stringMatching(/./),
      });
    });
  }
});
