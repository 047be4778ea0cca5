/** The group of one program where no cgroup2 is mounted: one of pids, emptied by hand. */

import type { ExecGroup } from "./cgroup.ts";
import { openGroupFile, readCount, readKeyed, readPids } from "./cgroup-files.ts";
import { joinedGroup } from "./joined-group.ts";
import { killPids } from "./kill-group.ts";
import type { Native } from "./native.ts";

/** CPU time that a v1 group counts, in microseconds; 0 without one. */
export function cpuacctUs(directory: string | null): number {
  if (directory === null) return 0;
  return Math.floor((readCount(directory, "cpuacct.usage") ?? 0) / 1000);
}

/**
 * Makes the group of an exec that is on v1 alone.
 *
 * @param cpuacct the sandbox's group that counts CPU time: what it has counted until now is not this
 *   exec's
 */
export function pidsExec(
  native: Native,
  directory: string,
  cpuacct: string | null,
): Promise<ExecGroup> {
  let cpuUsAtStart = 0;
  const join = (fds: number[]): void => {
    cpuUsAtStart = cpuacctUs(cpuacct);
    fds.push(openGroupFile(directory, "tasks"));
  };
  return joinedGroup(directory, join, {
    isEmpty: () => readPids(directory, "tasks").length === 0,
    kill: () => killPids(native, directory),
    // v1 counts a refusal in the group of whoever forks, not in the one with the limit.
    pidsRefused: () => readKeyed(directory, "pids.events", "max") ?? 0,
    cpuUs: () => cpuacctUs(cpuacct) - cpuUsAtStart,
  });
}
