/** How many descriptors this process may still open: connections and sandboxes share them. */

import { readdirSync, readFileSync } from "node:fs";

/** Descriptors that must be free for each job that has a slot, and for the one that would start. */
export const DESCRIPTORS_PER_JOB = 32;

/** The soft limit less what is open; infinite where proc(5) does not tell. */
export function freeDescriptors(): number {
  try {
    const limits = readFileSync("/proc/self/limits", "utf8");
    const soft = /^Max open files +(\d+)/m.exec(limits)?.[1];
    if (soft === undefined) return Number.POSITIVE_INFINITY;
    return Number(soft) - readdirSync("/proc/self/fd").length;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "EMFILE" || code === "ENFILE" ? 0 : Number.POSITIVE_INFINITY;
  }
}
