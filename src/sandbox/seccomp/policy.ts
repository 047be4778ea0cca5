/**
 * What the operator says about seccomp: on or off, and which calls are allowed besides. Extensions
 * add to every profile and never replace one.
 */

import { invalid } from "../../core/errors.ts";
import { isGuarded } from "./profile.ts";
import { isSyscallName, type SyscallName } from "./syscall-table.ts";

/** Most names of `CPRG_SECCOMP_ALLOW`. */
export const EXTRA_CALLS_MAX = 128;

const SWITCH = "CPRG_SECCOMP";
const ALLOW = "CPRG_SECCOMP_ALLOW";
const UNSAFE = "CPRG_SECCOMP_UNSAFE";

/** The settings as they were written. */
export interface SeccompSettings {
  /** `CPRG_SECCOMP`: `auto` (also `on`, empty or missing) or `off`. */
  readonly seccomp?: string | undefined;
  /** `CPRG_SECCOMP_ALLOW`: names of system calls between commas. */
  readonly allow?: string | undefined;
  /** `CPRG_SECCOMP_UNSAFE`: whether `allow` may name calls that are violations. */
  readonly unsafe?: boolean | undefined;
  /** Whether the server runs in production, where containment is never weakened. */
  readonly production: boolean;
}

/** What follows from them. */
export interface SeccompPolicy {
  readonly isOn: boolean;
  /** Calls that every profile allows besides its own: sorted, each once. */
  readonly allow: readonly SyscallName[];
}

/**
 * Checks the operator's settings.
 *
 * @throws CprgError `invalid_argument`, with the variable as `field` and the entry in the message
 */
export function parseSeccompPolicy(settings: SeccompSettings): SeccompPolicy {
  const { unsafe = false, production } = settings;
  const isOn = parseOn(settings.seccomp ?? "", production);
  if (unsafe && production) {
    throw invalid(UNSAFE, `${UNSAFE} is not for production`, `Unset ${UNSAFE} or CPRG_ENV.`);
  }
  const names = (settings.allow ?? "")
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
  if (names.length > EXTRA_CALLS_MAX) {
    throw invalid(ALLOW, `${ALLOW} has ${names.length} names; at most ${EXTRA_CALLS_MAX} are read`);
  }
  const allow = names.map((name) => parseName(name, { unsafe, production }));
  return { isOn, allow: [...new Set(allow)].sort() };
}

function parseOn(text: string, production: boolean): boolean {
  const word = text.trim().toLowerCase();
  if (word === "" || word === "auto" || word === "on") return true;
  if (word !== "off") throw invalid(SWITCH, `${SWITCH}: ${quote(text)} is neither auto nor off`);
  if (production) {
    throw invalid(SWITCH, `${SWITCH}=off is not for production`, `Unset ${SWITCH} or CPRG_ENV.`);
  }
  return false;
}

function parseName(
  name: string,
  { unsafe, production }: { readonly unsafe: boolean; readonly production: boolean },
): SyscallName {
  if (!isSyscallName(name)) {
    const hint = "Names are those of syscalls(2), such as vmsplice.";
    throw invalid(ALLOW, `${ALLOW}: ${quote(name)} is not a system call that cprg knows`, hint);
  }
  if (isGuarded(name) && !unsafe) {
    const why = `${ALLOW}: "${name}" guards the sandbox's boundary`;
    const hint = production
      ? "Production never allows it."
      : `${UNSAFE}=1 allows it, and with it a way out of the sandbox.`;
    throw invalid(ALLOW, why, hint);
  }
  return name;
}

/** What somebody wrote, short and on one line. */
function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}
