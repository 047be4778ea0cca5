/** Small questions about this kernel. */

import { readFileSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";

/** Whether user namespaces may be made here (user_namespaces(7)); the clone is what tells for sure. */
export function allowsUserNamespaces(): boolean {
  try {
    return Number(readFileSync("/proc/sys/user/max_user_namespaces", "utf8")) > 0;
  } catch {
    // The kernel is built without them.
    return false;
  }
}

/** Switches that leave user namespaces to processes with CAP_SYS_ADMIN, and the value that does. */
const RESERVED_SWITCHES = [
  // A patch of Debian's.
  ["unprivileged_userns_clone", 0],
  // AppArmor's (Ubuntu 23.10 and later): without it they may be made, but give no capability.
  ["apparmor_restrict_unprivileged_userns", 1],
] as const;

/** Who may make user namespaces: everybody, only who has CAP_SYS_ADMIN, or nobody. */
export type UserNamespaceRule = "free" | "reserved" | "forbidden";

/** What this host says. */
export function userNamespaceRule(): UserNamespaceRule {
  if (!allowsUserNamespaces()) return "forbidden";
  return reservingSwitches().length > 0 ? "reserved" : "free";
}

/**
 * The sysctls that reserve user namespaces.
 *
 * @param directory where they are; for tests
 */
export function reservingSwitches(directory = "/proc/sys/kernel"): readonly string[] {
  return RESERVED_SWITCHES.filter(([name, reserving]) => {
    try {
      return Number(readFileSync(join(directory, name), "utf8")) === reserving;
    } catch {
      // This kernel has no such switch.
      return false;
    }
  }).map(([name, reserving]) => `kernel.${name}=${reserving}`);
}

/** Whether the kernel's version is this or later. */
export function kernelAtLeast(major: number, minor: number): boolean {
  const [own = 0, ownMinor = 0] = release()
    .split(".")
    .map((part) => Number.parseInt(part, 10));
  return own > major || (own === major && ownMinor >= minor);
}
