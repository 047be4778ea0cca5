/** Killing what is in a group where the kernel has no cgroup.kill (Linux 5.14). */

import { closeSync } from "node:fs";
import { hasGroupFile, readPids, writeGroup } from "./cgroup-files.ts";
import type { Native } from "./native.ts";

const SIGKILL = 9;

/**
 * Kills everything in a cgroup2 group, also what is being forked. One pass where cgroup.kill is
 * missing: whoever waits for the group to be empty calls it again.
 */
export function killUnified(native: Native, directory: string): void {
  if (hasGroupFile(directory, "cgroup.kill")) {
    writeGroup(directory, "cgroup.kill", "1");
    return;
  }
  // A frozen process cannot fork, and dies of SIGKILL all the same (cgroup-v2.rst, Linux 5.2).
  writeGroup(directory, "cgroup.freeze", "1");
  killEach(native, directory);
}

/** Forbids new processes in a v1 group of pids, then kills each that is in it; one pass. */
export function killPids(native: Native, directory: string): void {
  writeGroup(directory, "pids.max", "0");
  killEach(native, directory);
}

/** Kills each process that is in a group now, and nothing else. */
export function killEach(native: Native, directory: string): void {
  for (const pid of readPids(directory)) {
    const pidfd = native.pidfd(pid);
    if (pidfd === null) continue;
    try {
      // The pid may have been given to another process before the pidfd was opened, not after.
      if (readPids(directory).includes(pid)) native.signal(pidfd, SIGKILL);
    } finally {
      closeSync(pidfd);
    }
  }
}
