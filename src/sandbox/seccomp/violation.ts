/** The name of a call that a filter trapped. */

import type { Violation } from "../../core/outcome.ts";
import { type Arch, AUDIT_ARCH, type SyscallName, syscallName } from "./syscall-table.ts";

/** The call's name, or undefined for a number that the machine's table does not hold. */
export function violationName(nr: number, arch: Arch): SyscallName | undefined {
  return syscallName(nr, arch);
}

/**
 * What the event log says of a notification.
 *
 * @param nr `seccomp_data.nr`
 * @param auditArch `seccomp_data.arch`: AUDIT_ARCH_* of <linux/audit.h>, unsigned
 */
export function violationOf(nr: number, auditArch: number): Violation {
  const arch = (Object.keys(AUDIT_ARCH) as Arch[]).find((each) => AUDIT_ARCH[each] === auditArch);
  if (arch === undefined) {
    return { type: "seccomp_violation", nr, arch: `0x${auditArch.toString(16)}` };
  }
  const syscall = violationName(nr, arch);
  return { type: "seccomp_violation", ...(syscall === undefined ? {} : { syscall }), nr, arch };
}

/** The violation where the kernel could not notify: the exec died of SIGSYS that a filter sent. */
export const UNNAMED_VIOLATION: Violation = { type: "seccomp_violation" };
