/** The group of one program on cgroup2, beside v1's controllers or with its own: it kills and counts. */

import type { ExecGroup } from "./cgroup.ts";
import { openGroupFile, readKeyed, setLimit } from "./cgroup-files.ts";
import { joinedGroup } from "./joined-group.ts";
import { killUnified } from "./kill-group.ts";
import type { Native } from "./native.ts";

/** Which controllers it is under. */
interface Controllers {
  /** The v1 group of processes that it joins as well, where the limit is on v1. */
  readonly pids?: string;
  /** Whether the memory controller is cgroup2's, and passed on to it. */
  readonly hasMemory?: boolean;
}

/** Makes the group of an exec that is on cgroup2. */
export function unifiedExec(
  native: Native,
  directory: string,
  { pids, hasMemory = false }: Controllers = {},
): Promise<ExecGroup> {
  const join = (fds: number[]): void => {
    if (hasMemory) setLimit(directory, "memory.oom.group", "1");
    if (pids !== undefined) fds.push(openGroupFile(pids, "tasks"));
    fds.push(openGroupFile(directory, "cgroup.procs"));
  };
  return joinedGroup(directory, join, {
    isEmpty: () => (readKeyed(directory, "cgroup.events", "populated") ?? 0) === 0,
    kill: () => killUnified(native, directory),
    pidsRefused: () => 0,
    oomKills: () => (hasMemory ? (readKeyed(directory, "memory.events", "oom_kill") ?? 0) : null),
    cpuUs: () => readKeyed(directory, "cpu.stat", "usage_usec") ?? 0,
  });
}
