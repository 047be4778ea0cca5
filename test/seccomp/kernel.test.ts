// The real kernel, given our program, does with calls what the interpreter says.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { compileFilter } from "../../src/sandbox/seccomp/compile-filter.ts";
import { BASE_RULES, PROFILE_NAMES, profileRules } from "../../src/sandbox/seccomp/profile.ts";
import { canAnswer } from "../../src/sandbox/seccomp/rule.ts";
import {
  AUDIT_ARCH,
  archOf,
  type SyscallName,
  syscallNumber,
} from "../../src/sandbox/seccomp/syscall-table.ts";
import { violationOf } from "../../src/sandbox/seccomp/violation.ts";
import { compileC, makeScratch, requireCompiler, type Scratch } from "./compile-c.ts";
import { EDGE_NUMBERS, EDGE_VALUES } from "./edge-calls.ts";
import { decodeProgram, runProgram } from "./interpreter.ts";
import {
  type KernelCall,
  type KernelMode,
  type KernelOutcome,
  makeCalls,
  toSeccompWords,
} from "./kernel-calls.ts";
import { makeRandomCalls } from "./random-calls.ts";

const host = requireCompiler(["linux/seccomp.h"]);
const arch = archOf(process.arch) ?? "x86_64";

const SIGSYS = 31;
const errno = { EPERM: 1, EBADF: 9, EINVAL: 22, ENOSYS: 38, EAFNOSUPPORT: 97 };
/** Newer kernels ask no filter about these two: they are made by the kernel's own trampolines. */
const unfiltered = new Set(
  (["uretprobe", "uprobe"] as const).map((name) => syscallNumber(name, arch)),
);
const returned = (value: number): KernelOutcome => ({ ending: "returned", value });
const killed: KernelOutcome = { ending: "signalled", signal: SIGSYS };

host.describe("the kernel", () => {
  let scratch: Scratch;
  let program = "";
  beforeAll(() => {
    scratch = makeScratch();
    program = compileC("kernel-calls", scratch.path);
  });
  afterAll(() => scratch.remove());

  const filter = compileFilter(profileRules("argv"), { arch, onTrap: "kill" });

  function run(
    mode: KernelMode,
    calls: readonly KernelCall[],
    used: Uint8Array | undefined = filter,
  ): KernelOutcome[] {
    return makeCalls(program, { mode, filter: used, calls });
  }

  /** One call in a process of its own. */
  function call(name: SyscallName, ...args: (bigint | number)[]): KernelOutcome | undefined {
    return run("one-by-one", [{ nr: numberOf(name), args: args.map(BigInt) }])[0];
  }

  describe("with every verdict made an errno", () => {
    // The same program, but nothing that it allows runs: so any call can be made, with anything.
    test.each(PROFILE_NAMES)("answers as the interpreter does, under %s", (profile) => {
      const rules = profileRules(profile);
      const checked = new Set(
        Object.entries(rules)
          .filter(([, rule]) => rule.check !== undefined)
          .map(([name]) => syscallNumber(name as SyscallName, arch)),
      );
      const calls = EDGE_NUMBERS.filter((nr) => !unfiltered.has(nr)).flatMap((nr) =>
        edgeArguments(nr, checked.has(nr)),
      );
      const answering = answerAll(compileFilter(rules, { arch, onTrap: "notify" }));
      const interpreted = decodeProgram(answering);

      const outcomes = run("answers", calls, answering);
      const wrong = calls.filter((each, index) => {
        const { verdict } = runProgram(interpreted, toSeccompWords(each, AUDIT_ARCH[arch]));
        const outcome = outcomes[index];
        return outcome?.ending !== "returned" || outcome.value !== -(verdict & 0xffff);
      });
      expect(wrong).toEqual([]);
      expect(calls.length).toBeGreaterThan(10_000);
    });
  });

  test("does with 500 random calls what the interpreter says", () => {
    const calls = makeRandomCalls(500, arch);
    const interpreted = decodeProgram(filter);
    const verdicts = calls.map(
      (each) => runProgram(interpreted, toSeccompWords(each, AUDIT_ARCH[arch])).verdict,
    );
    const outcomes = run("one-by-one", calls);
    const allowed = calls.filter((_, index) => verdicts[index] === 0x7fff0000);
    const free = new Map(
      run("one-by-one", allowed, undefined).map((outcome, index) => [allowed[index], outcome]),
    );

    const seen = { allowed: 0, killed: 0, refused: 0 };
    for (const [index, each] of calls.entries()) {
      const verdict = verdicts[index] ?? 0;
      const outcome = { call: each, ...outcomes[index] };
      if (verdict === 0x7fff0000) {
        seen.allowed++;
        expect({ call: each, ...blur(outcomes[index]) }).toEqual({
          call: each,
          ...blur(free.get(each)),
        });
      } else if (verdict === 0x80000000) {
        seen.killed++;
        expect(outcome).toEqual({ call: each, ...killed });
      } else {
        seen.refused++;
        expect(outcome).toEqual({ call: each, ...returned(-(verdict & 0xffff)) });
      }
    }
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(50);
  });

  test("kills what trapped calls are made by", () => {
    const names = trappedNames();
    const outcomes = run(
      "one-by-one",
      names.map((name) => trappedCall(name)),
    );
    expect(names.length).toBeGreaterThan(35);
    expect(names.filter((_, index) => !Bun.deepEquals(outcomes[index], killed))).toEqual([]);
  });

  test("names trapped calls through a listener, and lets the others be", () => {
    const names = trappedNames();
    const notifying = compileFilter(profileRules("argv"), { arch, onTrap: "notify" });
    const outcomes = run(
      "notified",
      [...names.map((name) => trappedCall(name)), { nr: numberOf("getpid"), args: [] }],
      notifying,
    );
    const violations = outcomes
      .slice(0, -1)
      .map((each) => (each.ending === "notified" ? violationOf(each.nr, each.auditArch) : each));
    expect(violations).toEqual(
      names.map((syscall) => ({
        type: "seccomp_violation",
        syscall,
        nr: numberOf(syscall),
        arch,
      })),
    );
    expect(outcomes.at(-1)?.ending).toBe("returned");
  });

  test("makes threads and processes but no namespaces", () => {
    const namespaces = [
      0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
    ];
    for (const flag of [...namespaces, 0x80, 0x7e020000]) {
      expect(call("clone", flag | 17)).toEqual(killed);
      expect(call("clone", BigInt(flag | 17) | (1n << 40n))).toEqual(killed);
    }
    expect(call("clone3", 0, 0)).toEqual(returned(-errno.ENOSYS));
    // CLONE_SIGHAND without CLONE_VM: the kernel's own refusal shows that the call came through.
    expect(call("clone", 0x800 | 17)).toEqual(returned(-errno.EINVAL));
  });

  test("opens AF_UNIX sockets and no others", () => {
    const stream = 1;
    const high = 1n << 32n;
    for (const family of [0, 2, 10, 16, 17, 38, 40, 44]) {
      expect(call("socket", family, stream, 0)).toEqual(returned(-errno.EAFNOSUPPORT));
      expect(call("socket", high | BigInt(family), stream, 0)).toEqual(
        returned(-errno.EAFNOSUPPORT),
      );
    }
    expect(call("socketpair", 2, stream, 0, 0)).toEqual(returned(-errno.EAFNOSUPPORT));
    const opened = call("socket", high | 1n, stream, 0);
    expect(opened?.ending === "returned" && opened.value >= 0).toBe(true);
  });

  test("refuses TIOCSTI, TIOCLINUX and TIOCSETD whatever the high bits", () => {
    for (const command of [0x5412, 0x541c, 0x5423]) {
      for (const high of [0n, 1n << 32n, 1n << 63n, 0xffffffffn << 32n]) {
        expect(call("ioctl", -1, high | BigInt(command), 0)).toEqual(returned(-errno.EPERM));
      }
    }
    const windowSize = 0x5413;
    expect(call("ioctl", -1, windowSize, 0)).toEqual(returned(-errno.EBADF));
  });

  test("changes limits of the caller alone, and no clocks", () => {
    expect(call("prlimit64", 1, 0, 0, 0)).toEqual(returned(-errno.EPERM));
    expect(call("prlimit64", 0, 0, 0, 0)).toEqual(returned(0));
    expect(call("settimeofday", 0, 0)).toEqual(returned(-errno.EPERM));
    expect(call("personality", 0xffffffff)).toEqual(returned(0));
    expect(call("personality", 0x40000)).toEqual(killed);
    expect(call("prctl", 22, 1, 0, 0, 0)).toEqual(returned(-errno.EINVAL));
  });

  test("kills what enters by the 32-bit door", () => {
    if (arch !== "x86_64") return;
    const calls = [{ nr: 0, args: [] }];
    const free = run("entry32", calls, undefined)[0];
    // Without IA32 emulation the door is not there: the instruction faults by itself.
    const isThere = free?.ending === "returned" && free.value > 0;
    expect(run("entry32", calls)[0]).toEqual(isThere ? killed : (free as KernelOutcome));
    expect(run("one-by-one", [{ nr: 39 + 0x40000000, args: [] }])[0]).toEqual(killed);
    expect(run("one-by-one", [{ nr: 0xffffffff, args: [] }])[0]).toEqual(returned(-errno.ENOSYS));
  });
});

function numberOf(name: SyscallName): number {
  const nr = syscallNumber(name, arch);
  if (nr === undefined) throw new Error(`${name} is not on ${arch}`);
  return nr;
}

/** Calls of this machine that can be a violation. */
function trappedNames(): SyscallName[] {
  return Object.entries(BASE_RULES)
    .filter(([, rule]) => canAnswer(rule, "trap"))
    .map(([name]) => name as SyscallName)
    .filter((name) => syscallNumber(name, arch) !== undefined);
}

/** The call with arguments with which it is one. None of them could do harm if it ran. */
function trappedCall(name: SyscallName): KernelCall {
  const newUserNamespace = 0x10000000n;
  const args =
    name === "clone" ? [newUserNamespace | 0xffn] : [0x3ffffffen, ~0n & 0xffff800000000010n];
  return { nr: numberOf(name), args };
}

/** All edges where the rule looks at an argument, a few elsewhere. */
function edgeArguments(nr: number, isChecked: boolean): KernelCall[] {
  const values = isChecked ? EDGE_VALUES : [0, 2, 0x5412, 0x10000000];
  return values.flatMap((low) =>
    (isChecked ? [0n, 1n, 0xffffffffn] : [0n]).map((high) => {
      const value = (high << 32n) | BigInt(low);
      return { nr, args: [value, value, value, value, value, value] };
    }),
  );
}

/** Makes every verdict an errno of its own, above those that the rules use. */
function answerAll(program: Uint8Array): Uint8Array {
  const codes = new Map([
    [0x7fff0000, 4000],
    [0x7fc00000, 4001],
    [0x80000000, 4002],
  ]);
  const bytes = program.slice();
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += 8) {
    const code = codes.get(view.getUint32(at + 4, true));
    const isAnswer = view.getUint16(at, true) === 0x06;
    if (isAnswer && code !== undefined) view.setUint32(at + 4, 0x00050000 | code, true);
  }
  return bytes;
}

/** Ids and addresses differ from run to run; whether a call succeeds does not. */
function blur(outcome: KernelOutcome | undefined): object {
  if (outcome?.ending !== "returned" || outcome.value < 0) return { ...outcome };
  return { ending: "returned", succeeded: true };
}
