/**
 * Rules of a profile to a BPF program. The program checks the machine, refuses x32, and finds the
 * call's number by binary search over ranges of numbers with the same rule. Arguments are loaded
 * only behind that, so that the kernel (since 5.11) sees which numbers are always allowed and does
 * not run the program for them at all.
 */

import { assert } from "../../core/errors.ts";
import { branch, encode, type Instruction, OFFSET, OP, plain, VERDICT } from "./bpf.ts";
import { type Answer, type Check, DEFAULT_ANSWER, ERRNO, type Rule, type Rules } from "./rule.ts";
import { type Arch, AUDIT_ARCH, type SyscallName, syscallNumber } from "./syscall-table.ts";

/**
 * What a violation does: `notify` wakes the listener of the filter, which names the call; `kill`
 * ends the process on the spot, for where a listener is not to be had.
 */
export type TrapMode = "notify" | "kill";

/** For whom a filter is compiled. */
export interface FilterTarget {
  readonly arch: Arch;
  readonly onTrap: TrapMode;
}

/** Numbers of x32 (and none but those) have this bit: __X32_SYSCALL_BIT of <asm/unistd.h>. */
const X32_BIT = 0x4000_0000;

/** What syscall(-1) has: programs ask so for ENOSYS, and it belongs to no machine. */
const NO_CALL = 0xffff_ffff;

/** Numbers from `start` up to the next range's share a rule. */
interface Range {
  readonly start: number;
  readonly rule: Pick<Rule, "answer" | "check">;
}

/** Compiles rules; the same rules give the same bytes. */
export function compileFilter(rules: Rules, target: FilterTarget): Uint8Array {
  const { arch, onTrap } = target;
  const kill = [plain(OP.answer, VERDICT.killProcess)];
  const search = compileSearch(findRanges(rules, arch), onTrap);
  const native: Instruction[] =
    arch === "x86_64"
      ? branch([OP.ifAtLeast, X32_BIT], {
          yes: branch([OP.ifEqual, NO_CALL], {
            yes: compileAnswer(DEFAULT_ANSWER, onTrap),
            no: kill,
          }),
          no: search,
        })
      : search;
  return encode([
    plain(OP.load, OFFSET.arch),
    ...branch([OP.ifEqual, AUDIT_ARCH[arch]], {
      yes: [plain(OP.load, OFFSET.nr), ...native],
      no: kill,
    }),
  ]);
}

/** The ranges in order; the first starts at 0, and neighbours differ. */
function findRanges(rules: Rules, arch: Arch): Range[] {
  const byDefault = { answer: DEFAULT_ANSWER };
  const numbered: Range[] = [];
  for (const [name, rule] of Object.entries(rules)) {
    const start = syscallNumber(name as SyscallName, arch);
    if (start !== undefined) numbered.push({ start, rule });
  }
  numbered.sort((a, b) => a.start - b.start);

  const ranges: Range[] = [];
  const push = (range: Range): void => {
    const last = ranges.at(-1);
    if (last === undefined || !isSameRule(last.rule, range.rule)) ranges.push(range);
  };
  let next = 0;
  for (const range of numbered) {
    if (range.start > next) push({ start: next, rule: byDefault });
    push(range);
    next = range.start + 1;
  }
  push({ start: next, rule: byDefault });
  return ranges;
}

function isSameRule(a: Range["rule"], b: Range["rule"]): boolean {
  return a.answer === b.answer && a.check === undefined && b.check === undefined;
}

/** Binary search: each step halves the ranges. */
function compileSearch(ranges: readonly Range[], onTrap: TrapMode): Instruction[] {
  const [first] = ranges;
  assert(first !== undefined, "a search without ranges");
  if (ranges.length === 1) return compileRule(first.rule, onTrap);
  const middle = ranges.length >> 1;
  const upper = ranges.slice(middle);
  return branch([OP.ifAtLeast, upper[0]?.start ?? 0], {
    yes: compileSearch(upper, onTrap),
    no: compileSearch(ranges.slice(0, middle), onTrap),
  });
}

function compileRule({ answer, check }: Range["rule"], onTrap: TrapMode): Instruction[] {
  const otherwise = compileAnswer(answer, onTrap);
  if (check === undefined) return otherwise;
  return [
    plain(OP.load, OFFSET.args + 8 * check.arg),
    ...compileCheck(check, { yes: compileAnswer(check.answer, onTrap), no: otherwise }),
  ];
}

/** The low half of an argument lies first; the high half is never looked at (see Check). */
function compileCheck(
  { test, values }: Check,
  { yes, no }: { readonly yes: readonly Instruction[]; readonly no: readonly Instruction[] },
): Instruction[] {
  const code = test === "equals" ? OP.ifEqual : OP.ifAnyBit;
  return values.reduceRight<Instruction[]>(
    (rest, value) => branch([code, value], { yes, no: rest }),
    [...no],
  );
}

function compileAnswer(answer: Answer, onTrap: TrapMode): Instruction[] {
  return [plain(OP.answer, verdictOf(answer, onTrap))];
}

/** SECCOMP_RET_* of an answer. */
export function verdictOf(answer: Answer, onTrap: TrapMode): number {
  if (answer === "allow") return VERDICT.allow;
  if (answer !== "trap") return VERDICT.errno | ERRNO[answer];
  return onTrap === "notify" ? VERDICT.notify : VERDICT.killProcess;
}
