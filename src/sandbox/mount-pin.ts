/**
 * A hold on a sandbox's mount namespace that outlives process 1. Whoever lets go of a namespace last
 * takes its mounts apart and waits for grace periods of the kernel meanwhile. Process 1 would do that
 * before it is dead, and everybody who waits for its death with it; so a thread does it that nobody
 * waits for. All processes are gone by then, and nothing can be reached by its name any more.
 */

import { close, openSync } from "node:fs";

/**
 * Holds the namespace of a process that is this one's child and not reaped.
 *
 * @returns lets go, at once for the caller; idempotent
 */
export function pinMounts(pid: number): () => void {
  let fd: number | null = null;
  try {
    fd = openSync(`/proc/${pid}/ns/mnt`, "r");
  } catch {
    // Dead, not ours to look at (ptrace(2), PTRACE_MODE_READ_FSCREDS) or no descriptor left: process 1
    // then takes its mounts apart itself, which is only slower.
  }
  return () => {
    // Not closeSync: the work is done in close(2), on the thread that calls it.
    if (fd !== null) close(fd, () => undefined);
    fd = null;
  };
}
