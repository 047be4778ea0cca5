/** The filters of one engine: how they answer on this host, and the programs of each profile. */

import { CprgError } from "../../core/errors.ts";
import type { FilterPrograms } from "../spawn-plan.ts";
import { compileFilter } from "./compile-filter.ts";
import { seccompSupport } from "./host-support.ts";
import type { SeccompPolicy } from "./policy.ts";
import { type ProfileName, profileOfLanguage, profileRules } from "./profile.ts";
import { archOf } from "./syscall-table.ts";

/** Filters, or none where the operator turned them off. */
export interface SeccompFilters {
  /** The layer, as it is reported. */
  readonly mode: "notify" | "kill" | false;
  /** The programs for an exec of a language, `argv` by default; null where the layer is off. */
  of(language?: string): FilterPrograms | null;
}

const NO_FILTERS: SeccompFilters = { mode: false, of: () => null };

/**
 * What an operator's policy means on this host. Each profile is compiled once, when it is first
 * used.
 *
 * @throws CprgError `failed_precondition` where filters are wanted and not to be had
 */
export function openFilters(policy: SeccompPolicy = { isOn: true, allow: [] }): SeccompFilters {
  if (!policy.isOn) return NO_FILTERS;
  const { mode, detail, fix } = seccompSupport();
  const arch = archOf(process.arch);
  if (mode === null || arch === undefined) {
    throw new CprgError("failed_precondition", `Cannot filter system calls: ${detail}`, {
      reason: "NO_SECCOMP",
      ...(fix === null ? {} : { hint: fix }),
    });
  }
  const compiled = new Map<ProfileName, FilterPrograms>();
  return {
    mode,
    of: (language = "argv") => {
      const profile = profileOfLanguage(language);
      let programs = compiled.get(profile);
      if (programs === undefined) {
        const rules = profileRules(profile, policy.allow);
        programs = {
          notify: mode === "notify" ? compileFilter(rules, { arch, onTrap: "notify" }) : null,
          kill: compileFilter(rules, { arch, onTrap: "kill" }),
        };
        compiled.set(profile, programs);
      }
      return programs;
    },
  };
}
