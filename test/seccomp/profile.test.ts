// What the profiles promise, and that the lists they are made of are sound.

import { describe, expect, test } from "bun:test";
import { ALLOW_GROUPS } from "../../src/sandbox/seccomp/base-allow.ts";
import { CHECKED, REFUSED } from "../../src/sandbox/seccomp/base-checked.ts";
import { TRAPS } from "../../src/sandbox/seccomp/base-trap.ts";
import {
  BASE_RULES,
  isGuarded,
  PROFILE_CHANGES,
  PROFILE_NAMES,
  profileOfLanguage,
  profileRules,
} from "../../src/sandbox/seccomp/profile.ts";
import { canAnswer, type Rule } from "../../src/sandbox/seccomp/rule.ts";
import { isSyscallName, type SyscallName } from "../../src/sandbox/seccomp/syscall-table.ts";

const every = (name: SyscallName): (Rule | undefined)[] =>
  PROFILE_NAMES.map((profile) => profileRules(profile)[name]);

describe("the base", () => {
  const lists = [
    ...ALLOW_GROUPS.map(({ calls }) => calls),
    Object.keys(TRAPS),
    Object.keys(CHECKED),
    Object.keys(REFUSED),
  ].flat();

  test("names calls that exist, each in one list", () => {
    expect(lists.filter((name) => !isSyscallName(name))).toEqual([]);
    expect(lists.filter((name, index) => lists.indexOf(name) !== index)).toEqual([]);
    expect(Object.keys(BASE_RULES).length).toBe(lists.length);
  });

  test("says why of every rule, in one line", () => {
    const rules = [
      ...Object.entries(BASE_RULES),
      ...Object.values(PROFILE_CHANGES).flatMap(Object.entries),
    ];
    for (const [name, { why }] of rules) {
      expect({
        name,
        isOneLine: why.length > 5 && why.length < 100 && !why.includes("\n"),
      }).toEqual({
        name,
        isOneLine: true,
      });
    }
  });

  test("looks only at values of 32 bits, and answers both ways differently", () => {
    for (const { answer, check } of Object.values(CHECKED)) {
      expect(check).toBeDefined();
      expect(check?.answer).not.toBe(answer);
      for (const value of check?.values ?? []) expect(value >>> 0).toBe(value);
    }
  });
});

describe("every profile", () => {
  // issue: the calls whose violation must be named
  const named: SyscallName[] = [
    "ptrace",
    "bpf",
    "unshare",
    "mount",
    "keyctl",
    "userfaultfd",
    "perf_event_open",
    "open_by_handle_at",
    "setns",
    "init_module",
    "kexec_load",
    "process_vm_readv",
    "pidfd_getfd",
    "pivot_root",
    "io_uring_enter",
  ];
  test.each(named)("traps %s", (name) => {
    for (const rule of every(name)) expect(rule).toMatchObject({ answer: "trap" });
  });

  test("never makes clone3, whose flags no filter can see", () => {
    for (const rule of every("clone3")) expect(rule?.answer).toBe("ENOSYS");
  });

  test("lets a child report and start its program after the filter is installed", () => {
    const needed: SyscallName[] = [
      "sendmsg",
      "close",
      "close_range",
      "write",
      "chdir",
      "rt_sigprocmask",
      "execve",
      "exit",
      "exit_group",
    ];
    for (const name of needed) {
      for (const rule of every(name)) expect(rule).toMatchObject({ answer: "allow" });
    }
  });

  test("changes little, and nothing into a weaker answer than an error", () => {
    for (const name of PROFILE_NAMES) {
      const changes = Object.values(PROFILE_CHANGES[name]);
      expect(changes.length).toBeLessThanOrEqual(3);
      for (const rule of changes) expect(canAnswer(rule, "allow")).toBe(false);
    }
  });

  test("takes an operator's calls on top, with nothing else changed", () => {
    const extended = profileRules("python", ["vmsplice", "socket"]);
    expect(extended.vmsplice?.answer).toBe("allow");
    expect(extended.socket).toMatchObject({ answer: "allow" });
    expect(extended.socket?.check).toBeUndefined();
    const { vmsplice: _, socket: __, ...rest } = extended;
    const { vmsplice: ___, socket: ____, ...base } = profileRules("python");
    expect(rest).toEqual(base);
  });
});

describe("isGuarded()", () => {
  test("holds for every violation and what guards a boundary, and for no other", () => {
    const guarded = Object.keys(BASE_RULES).filter((name) => isGuarded(name as SyscallName));
    const traps = Object.entries(BASE_RULES).filter(([, rule]) => canAnswer(rule, "trap"));
    expect(guarded.sort()).toEqual(
      [...traps.map(([name]) => name), "clone3", "ioctl", "prlimit64"].sort(),
    );
    expect(isGuarded("vmsplice")).toBe(false);
    expect(isGuarded("statmount")).toBe(false);
  });
});

describe("profileOfLanguage()", () => {
  test.each([
    ["python", "python"],
    ["typescript", "javascript"],
    ["javascript", "javascript"],
    ["node", "node"],
    ["bash", "bash"],
    ["argv", "argv"],
    ["ruby", "argv"],
    ["__proto__", "argv"],
  ])("%s has the profile %s", (language, profile) => {
    expect(profileOfLanguage(language)).toBe(profile as never);
  });
});
