/**
 * What the rules of a profile say of one call, read as a person would: look up the name, look at
 * the argument. Shares no code with the compiler; SECCOMP_RET_* and errno values are written out.
 */

import type { Answer, Rules } from "../../src/sandbox/seccomp/rule.ts";
import type { Arch, SyscallName } from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import type { SeccompWords } from "./interpreter.ts";

const KILL = 0x80000000;
const VERDICTS: Readonly<Record<Exclude<Answer, "trap">, number>> = {
  allow: 0x7fff0000,
  EPERM: 0x00050001,
  EINVAL: 0x00050016,
  ENOSYS: 0x00050026,
  EAFNOSUPPORT: 0x00050061,
};
const TRAPS = { notify: 0x7fc00000, kill: KILL } as const;

const TABLES = {
  x86_64: { audit: 0xc000003e, numbers: SYSCALLS_X86_64 },
  aarch64: { audit: 0xc00000b7, numbers: SYSCALLS_AARCH64 },
} as const;

/** Evaluates calls one by one. */
export function makeEvaluator(
  rules: Rules,
  { arch, onTrap }: { readonly arch: Arch; readonly onTrap: "notify" | "kill" },
): (words: SeccompWords) => number {
  const names: (SyscallName | undefined)[] = [];
  for (const [name, nr] of Object.entries(TABLES[arch].numbers)) names[nr] = name as SyscallName;
  const verdictOf = (answer: Answer): number =>
    answer === "trap" ? TRAPS[onTrap] : VERDICTS[answer];

  return (words) => {
    const nr = words[0] ?? 0;
    if (words[1] !== TABLES[arch].audit) return KILL;
    if (arch === "x86_64" && nr >= 0x40000000 && nr !== 0xffffffff) return KILL;
    const name = names[nr];
    const rule = name === undefined ? undefined : rules[name];
    if (rule === undefined) return VERDICTS.ENOSYS;
    if (rule.check === undefined) return verdictOf(rule.answer);
    const low = words[4 + 2 * rule.check.arg] ?? 0;
    const holds = rule.check.values.some((value) =>
      rule.check?.test === "equals" ? low === value : (low & value) !== 0,
    );
    return verdictOf(holds ? rule.check.answer : rule.answer);
  };
}
