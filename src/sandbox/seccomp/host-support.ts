/** What the kernel, and whatever started the server, leave of seccomp(2) on this host. */

import { readFileSync } from "node:fs";

/** How a filter answers what it traps here; `mode` null: filters are not to be had. */
export interface SeccompSupport {
  readonly mode: "notify" | "kill" | null;
  /** For people. */
  readonly detail: string;
  /** What the operator can do about it; null when nothing is to be done. */
  readonly fix: string | null;
}

/**
 * Judges two files of proc(5).
 *
 * @param actions `/proc/sys/kernel/seccomp/actions_avail`, or null where there is none
 * @param status `/proc/self/status`
 */
export function judgeSupport(actions: string | null, status: string): SeccompSupport {
  const words = new Set(actions?.trim().split(/\s+/));
  if (!words.has("kill_process")) {
    return {
      mode: null,
      detail: "the kernel has no system call filters, or hides /proc/sys/kernel/seccomp",
      fix: "Use a kernel with CONFIG_SECCOMP_FILTER; or give the layer up: CPRG_SECCOMP=off",
    };
  }
  // An error from the outer filter goes before our notification, but not before our kill.
  if (/^Seccomp:\s*2$/m.test(status)) {
    return {
      mode: "kill",
      detail: "forbidden system calls end the program, but are not named: the server is filtered",
      fix: "Start the server without a filter of its own (container: --security-opt seccomp=unconfined)",
    };
  }
  if (!words.has("user_notif")) {
    return {
      mode: "kill",
      detail: "forbidden system calls end the program, but are not named",
      fix: "Linux 5.0",
    };
  }
  return {
    mode: "notify",
    detail: "forbidden system calls end the program and are named",
    fix: null,
  };
}

/** Looks at this host. */
export function seccompSupport(): SeccompSupport {
  return judgeSupport(
    readOrNull("/proc/sys/kernel/seccomp/actions_avail"),
    readOrNull("/proc/self/status") ?? "",
  );
}

function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // Absent: the kernel is built without it, or the container hides it.
    return null;
  }
}
