/** Small questions about this kernel. */

import { readFileSync } from "node:fs";
import { release } from "node:os";

/** Whether user namespaces may be made here (user_namespaces(7)); the clone is what tells for sure. */
export function allowsUserNamespaces(): boolean {
  try {
    return Number(readFileSync("/proc/sys/user/max_user_namespaces", "utf8")) > 0;
  } catch {
    // The kernel is built without them.
    return false;
  }
}

/** Whether the kernel's version is this or later. */
export function kernelAtLeast(major: number, minor: number): boolean {
  const [own = 0, ownMinor = 0] = release()
    .split(".")
    .map((part) => Number.parseInt(part, 10));
  return own > major || (own === major && ownMinor >= minor);
}
