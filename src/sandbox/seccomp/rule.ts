/** What a profile says about one system call. Pure values: compile-filter.ts makes BPF of them. */

import type { SyscallName } from "./syscall-table.ts";

/** errno values that a filter answers with; the same on both machines. */
export const ERRNO = { EPERM: 1, EINVAL: 22, ENOSYS: 38, EAFNOSUPPORT: 97 } as const;

/**
 * What happens to a call: it runs; it returns an error without running; or it is a violation
 * (`trap`), which is named where the kernel can notify init, and ends the exec in any case.
 */
export type Answer = "allow" | "trap" | keyof typeof ERRNO;

/**
 * A question about one argument. Only its low 32 bits are looked at, because every call that has a
 * check takes an `int` or `unsigned int` there (clone: `lower_32_bits`): the kernel drops the high
 * ones, so a filter that compared them could be walked around.
 */
export interface Check {
  readonly arg: 0 | 1 | 2 | 3 | 4 | 5;
  /** `equals`: it is one of the values. `anyBit`: it has a bit of one of the values. */
  readonly test: "equals" | "anyBit";
  readonly values: readonly number[];
  /** The answer where the check holds. */
  readonly answer: Answer;
}

/** The rule of one call. */
export interface Rule {
  /** The answer, where no check holds. */
  readonly answer: Answer;
  readonly check?: Check;
  /** Why, in one line. */
  readonly why: string;
  /** Allowing the call as a whole takes the unsafe switch, although nothing in the rule traps. */
  readonly isGuarded?: true;
}

/** Rules by name. A call without one is answered with {@link DEFAULT_ANSWER}. */
export type Rules = Readonly<Partial<Record<SyscallName, Rule>>>;

/**
 * What programs meet on an older kernel, and so what they can live with: EPERM would make C
 * libraries give up where ENOSYS makes them take the older call.
 */
export const DEFAULT_ANSWER: Answer = "ENOSYS";

/** Whether a rule has an answer in any of its branches. */
export function canAnswer(rule: Rule, answer: Answer): boolean {
  return rule.answer === answer || rule.check?.answer === answer;
}
