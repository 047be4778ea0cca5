// The compiled filter says what the rules say, for every number, both machines and edge arguments.

import { describe, expect, test } from "bun:test";
import { compileFilter, type FilterTarget } from "../../src/sandbox/seccomp/compile-filter.ts";
import { PROFILE_NAMES, profileRules } from "../../src/sandbox/seccomp/profile.ts";
import type { Rules } from "../../src/sandbox/seccomp/rule.ts";
import { type Arch, AUDIT_ARCH } from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import { AUDIT_ARCHES, describeCall, EDGE_NUMBERS, edgeCalls } from "./edge-calls.ts";
import { makeEvaluator } from "./evaluate.ts";
import { decodeProgram, runProgram, SECCOMP_WORDS } from "./interpreter.ts";

const targets: readonly FilterTarget[] = [
  { arch: "x86_64", onTrap: "notify" },
  { arch: "x86_64", onTrap: "kill" },
  { arch: "aarch64", onTrap: "notify" },
  { arch: "aarch64", onTrap: "kill" },
];

/** What a comparison over all edge calls found. */
interface Comparison {
  /** The first difference. */
  readonly difference?: string;
  /** How many calls were alike before it. */
  readonly calls: number;
}

const compared = new Map<string, Comparison>();

/** Compares over all edge calls. Profiles with the same rules share one comparison. */
function compare(rules: Rules, target: FilterTarget): Comparison {
  const key = JSON.stringify({ rules, target });
  const known = compared.get(key) ?? compareAll(rules, target);
  compared.set(key, known);
  return known;
}

function compareAll(rules: Rules, target: FilterTarget): Comparison {
  const program = decodeProgram(compileFilter(rules, target));
  const evaluate = makeEvaluator(rules, target);
  let calls = 0;
  for (const words of edgeCalls(AUDIT_ARCH[target.arch])) {
    const { verdict } = runProgram(program, words);
    const expected = evaluate(words);
    if (verdict !== expected) {
      const values = `0x${verdict.toString(16)}, not 0x${expected.toString(16)}`;
      return { difference: `${describeCall(words)}: ${values}`, calls };
    }
    calls++;
  }
  return { calls };
}

describe.each(targets)("a filter for $arch with $onTrap", (target) => {
  test.each(PROFILE_NAMES)("says what the rules of %s say", (profile) => {
    const { difference, calls } = compare(profileRules(profile), target);
    expect(difference).toBeUndefined();
    expect(calls).toBeGreaterThan(2_500_000);
  });

  test("says what rules with an operator's extension say", () => {
    const rules = profileRules("argv", ["vmsplice", "socket", "clone", "ptrace", "clone3"]);
    expect(compare(rules, target).difference).toBeUndefined();
  });

  test("ends a process that enters by another machine's door", () => {
    const program = decodeProgram(compileFilter(profileRules("argv"), target));
    const words = new Uint32Array(SECCOMP_WORDS);
    for (const auditArch of AUDIT_ARCHES) {
      if (auditArch === AUDIT_ARCH[target.arch]) continue;
      for (const nr of EDGE_NUMBERS) {
        words[0] = nr;
        words[1] = auditArch;
        expect(runProgram(program, words).verdict).toBe(0x80000000);
      }
    }
  });

  test("takes few instructions for any call", () => {
    const bytes = compileFilter(profileRules("argv"), target);
    const program = decodeProgram(bytes);
    let most = 0;
    for (const words of edgeCalls(AUDIT_ARCH[target.arch])) {
      most = Math.max(most, runProgram(program, words).steps);
    }
    expect(bytes.length / 8).toBeLessThanOrEqual(300);
    expect(most).toBeLessThanOrEqual(20);
  });
});

describe("compileFilter()", () => {
  const tables = { x86_64: SYSCALLS_X86_64, aarch64: SYSCALLS_AARCH64 } as const;

  /** As many ranges as there can be: every second call trapped, the rest allowed. */
  function stripes(arch: Arch): Rules {
    return Object.fromEntries(
      Object.entries(tables[arch]).map(([name, nr]) => [
        name,
        nr % 2 === 0
          ? { answer: "trap", why: "even" }
          : {
              answer: "allow",
              why: "odd",
              check: { arg: 1, test: "equals", values: [1, 2, 3, 5, 8, 13, 21], answer: "EPERM" },
            },
      ]),
    );
  }

  test.each(["x86_64", "aarch64"] as const)(
    "jumps over more than 255 instructions on %s",
    (arch) => {
      const target = { arch, onTrap: "kill" } as const;
      expect(compileFilter(stripes(arch), target).length / 8).toBeGreaterThan(2000);
      expect(compare(stripes(arch), target).difference).toBeUndefined();
    },
  );

  test("answers ENOSYS to everything without rules", () => {
    const program = decodeProgram(compileFilter({}, { arch: "x86_64", onTrap: "kill" }));
    const words = new Uint32Array(SECCOMP_WORDS);
    words[1] = AUDIT_ARCH.x86_64;
    expect(runProgram(program, words).verdict).toBe(0x00050026);
  });

  test("gives the same bytes whatever the order of the rules", () => {
    const rules = profileRules("python");
    const reversed = Object.fromEntries(Object.entries(rules).reverse());
    for (const target of targets) {
      expect(compileFilter(reversed, target)).toEqual(compileFilter(rules, target));
    }
  });

  test("refuses a program longer than the kernel takes", () => {
    const values = Array.from({ length: 5000 }, (_, value) => value);
    const rules: Rules = {
      read: {
        answer: "allow",
        why: "",
        check: { arg: 0, test: "equals", values, answer: "EPERM" },
      },
    };
    expect(() => compileFilter(rules, { arch: "x86_64", onTrap: "kill" })).toThrow("BUG(cprg)");
  });
});
