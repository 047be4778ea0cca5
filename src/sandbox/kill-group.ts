/** Killing what is in a group: with cgroup.kill (Linux 5.14), and each process by itself. */

import { closeSync } from "node:fs";
import { join } from "node:path";
import { childGroups, hasGroupFile, readKeyed, readPids, writeGroup } from "./cgroup-files.ts";
import type { Native } from "./native.ts";

const SIGKILL = 9;
/** Processes that are held at once while they are killed: a descriptor for each. */
const BATCH = 64;
/** Levels of groups beneath one that is killed. */
const DEPTH_MAX = 8;

/**
 * Kills everything in a cgroup2 group, also what is being forked. cgroup.kill spares a process whose
 * main thread has ended while others live (seen on Linux 6.18), so whatever is still there is killed
 * by itself; one pass: whoever waits for the group to be empty calls it again.
 */
export function killUnified(native: Native, directory: string): void {
  if (hasGroupFile(directory, "cgroup.kill")) {
    writeGroup(directory, "cgroup.kill", "1");
    if (readKeyed(directory, "cgroup.events", "populated") === 0) return;
  }
  // A frozen process cannot fork, and dies of SIGKILL all the same (cgroup-v2.rst, Linux 5.2).
  writeGroup(directory, "cgroup.freeze", "1");
  killTree(native, directory);
}

/** Kills each process in a group and in those beneath it. */
function killTree(native: Native, directory: string, depth = 0): void {
  killEach(native, directory);
  if (depth >= DEPTH_MAX) return;
  for (const name of childGroups(directory)) killTree(native, join(directory, name), depth + 1);
}

/** Forbids new processes in a v1 group of pids, then kills each that is in it; one pass. */
export function killPids(native: Native, directory: string): void {
  writeGroup(directory, "pids.max", "0");
  killEach(native, directory);
}

/** Kills each process that is in a group now, and nothing else. */
export function killEach(native: Native, directory: string): void {
  const pids = readPids(directory);
  for (let at = 0; at < pids.length; at += BATCH) {
    killBatch(native, directory, pids.slice(at, at + BATCH));
  }
}

function killBatch(native: Native, directory: string, pids: readonly number[]): void {
  const held = new Map<number, number>();
  try {
    for (const pid of pids) {
      const pidfd = native.pidfd(pid);
      if (pidfd !== null) held.set(pid, pidfd);
    }
    // A pid may have been given to another process before its pidfd was opened, not after.
    for (const pid of readPids(directory)) {
      const pidfd = held.get(pid);
      if (pidfd !== undefined) native.signal(pidfd, SIGKILL);
    }
  } finally {
    for (const pidfd of held.values()) closeSync(pidfd);
  }
}
