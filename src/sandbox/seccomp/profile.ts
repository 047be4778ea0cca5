/**
 * Profiles: the base, and the little that a language changes. An operator's extension goes on top
 * and only ever turns an answer into `allow`.
 */

import { ALLOW_GROUPS } from "./base-allow.ts";
import { CHECKED, REFUSED } from "./base-checked.ts";
import { TRAPS } from "./base-trap.ts";
import { canAnswer, type Rule, type Rules } from "./rule.ts";
import type { SyscallName } from "./syscall-table.ts";

/** What has a profile: the languages, and `argv` for any program. */
export const PROFILE_NAMES = ["python", "node", "javascript", "bash", "argv"] as const;
export type ProfileName = (typeof PROFILE_NAMES)[number];

/** What every profile stands on. */
export const BASE_RULES: Rules = {
  ...Object.fromEntries(
    ALLOW_GROUPS.flatMap(({ why, calls }) =>
      calls.map((name) => [name, { answer: "allow", why } satisfies Rule]),
    ),
  ),
  ...Object.fromEntries(
    Object.entries(TRAPS).map(([name, why]) => [name, { answer: "trap", why } satisfies Rule]),
  ),
  ...CHECKED,
  ...REFUSED,
};

/**
 * What a language adds to the base or takes away. Few, because a program of any language starts
 * programs of the others.
 */
export const PROFILE_CHANGES: Readonly<Record<ProfileName, Rules>> = {
  python: {},
  node: {
    io_uring_setup: {
      answer: "ENOSYS",
      why: "Node's own libuv tries it, and may ask for another size in its next version",
    },
  },
  javascript: {},
  bash: {},
  argv: {},
};

/** The rules of a profile, with the calls that the operator allows besides. */
export function profileRules(profile: ProfileName, extra: readonly SyscallName[] = []): Rules {
  const allowed: Rule = { answer: "allow", why: "the operator allows it" };
  return {
    ...BASE_RULES,
    ...PROFILE_CHANGES[profile],
    ...Object.fromEntries(extra.map((name) => [name, allowed])),
  };
}

/** The profile of a job's language. TypeScript runs on what runs JavaScript. */
export function profileOfLanguage(language: string): ProfileName {
  if (language === "typescript") return "javascript";
  return PROFILE_NAMES.find((name) => name === language) ?? "argv";
}

/** Whether allowing a call takes the unsafe switch: it is a violation, or guards a boundary. */
export function isGuarded(name: SyscallName): boolean {
  const rule = BASE_RULES[name];
  return rule !== undefined && (rule.isGuarded === true || canAnswer(rule, "trap"));
}
