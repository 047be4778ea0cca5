// Our program and libseccomp's, made of the same rules, say the same of every call.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { compileFilter, type FilterTarget } from "../../src/sandbox/seccomp/compile-filter.ts";
import { profileRules } from "../../src/sandbox/seccomp/profile.ts";
import type { Rules } from "../../src/sandbox/seccomp/rule.ts";
import {
  type Arch,
  AUDIT_ARCH,
  type SyscallName,
  syscallNumber,
} from "../../src/sandbox/seccomp/syscall-table.ts";
import { NEWER_COMMON, NEWER_X86_64 } from "../gen/newer-syscalls.ts";
import { compileC, makeScratch, requireCompiler, type Scratch } from "./compile-c.ts";
import { AUDIT_ARCHES, describeCall, EDGE_NUMBERS, edgeCalls } from "./edge-calls.ts";
import { type BpfProgram, decodeProgram, runProgram, SECCOMP_WORDS } from "./interpreter.ts";
import { writeRules } from "./libseccomp-rules.ts";

const host = requireCompiler(["seccomp.h"]);

const policies: readonly { readonly title: string; readonly rules: Rules }[] = [
  { title: "the base", rules: profileRules("argv") },
  { title: "node", rules: profileRules("node") },
  { title: "an extended profile", rules: profileRules("argv", ["socket", "vmsplice", "ptrace"]) },
];
const targets: readonly FilterTarget[] = [
  { arch: "x86_64", onTrap: "notify" },
  { arch: "x86_64", onTrap: "kill" },
  { arch: "aarch64", onTrap: "notify" },
  { arch: "aarch64", onTrap: "kill" },
];

/** Numbers of the names on a machine. */
function findNumbers(names: ReadonlySet<string>, arch: Arch): ReadonlySet<number> {
  const numbers = [...names].map((name) => syscallNumber(name as SyscallName, arch));
  return new Set(numbers.filter((nr) => nr !== undefined));
}

/** Runs both over the edge calls that are wanted, up to the first that they tell apart. */
function compare(
  ours: BpfProgram,
  theirs: BpfProgram,
  { auditArch, skipped }: { readonly auditArch: number; readonly skipped: ReadonlySet<number> },
): { readonly difference?: string; readonly calls: number } {
  let calls = 0;
  for (const words of edgeCalls(auditArch)) {
    if (skipped.has(words[0] ?? 0)) continue;
    const our = runProgram(ours, words).verdict;
    const their = runProgram(theirs, words).verdict;
    if (our !== their) {
      const verdicts = `0x${our.toString(16)}, libseccomp 0x${their.toString(16)}`;
      return { difference: `${describeCall(words)}: ${verdicts}`, calls };
    }
    calls++;
  }
  return { calls };
}

host.describe("libseccomp", () => {
  let scratch: Scratch;
  let twin = "";
  beforeAll(() => {
    scratch = makeScratch();
    twin = compileC("libseccomp-twin", scratch.path, ["-lseccomp"]);
  });
  afterAll(() => scratch.remove());

  /** libseccomp's program, and the calls that it does not know. */
  function build(
    rules: Rules,
    target: FilterTarget,
  ): { program: BpfProgram; unknown: Set<string> } {
    const run = Bun.spawnSync([twin, target.arch], {
      stdin: Buffer.from(writeRules(rules, target)),
    });
    expect({ code: run.exitCode, failed: `${run.stderr}`.match(/^failed.*/m) }).toEqual({
      code: 0,
      failed: null,
    });
    const unknown = [...`${run.stderr}`.matchAll(/^unknown: (\w+)$/gm)].map(
      ([, name]) => name ?? "",
    );
    return { program: decodeProgram(run.stdout), unknown: new Set(unknown) };
  }

  for (const target of targets) {
    for (const { title, rules } of policies) {
      test(`agrees on ${title} for ${target.arch} with ${target.onTrap}`, () => {
        const ours = decodeProgram(compileFilter(rules, target));
        const { program: theirs, unknown } = build(rules, target);
        for (const name of unknown)
          expect({ ...NEWER_COMMON, ...NEWER_X86_64 }).toHaveProperty(name);

        const { difference, calls } = compare(ours, theirs, {
          auditArch: AUDIT_ARCH[target.arch],
          skipped: findNumbers(unknown, target.arch),
        });
        expect(difference).toBeUndefined();
        expect(calls).toBeGreaterThan(2_500_000);
      });
    }

    test(`agrees on other machines' calls for ${target.arch} with ${target.onTrap}`, () => {
      const rules = profileRules("argv");
      const ours = decodeProgram(compileFilter(rules, target));
      const { program: theirs } = build(rules, target);
      const words = new Uint32Array(SECCOMP_WORDS);
      for (const auditArch of AUDIT_ARCHES) {
        if (auditArch === AUDIT_ARCH[target.arch]) continue;
        for (const nr of EDGE_NUMBERS) {
          words[0] = nr;
          words[1] = auditArch;
          expect(runProgram(ours, words).verdict).toBe(runProgram(theirs, words).verdict);
        }
      }
    });
  }
});
