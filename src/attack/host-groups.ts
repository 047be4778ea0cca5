/** Control groups of a process as the host's kernel tells them, on v1, v2 and both. */

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Hierarchy, parseHierarchies } from "../sandbox/cgroup-hierarchy.ts";
import { readProcess } from "./host-process.ts";

/** Above it a v1 memory limit is none: it starts at the largest number of whole pages. */
const NO_MEMORY_LIMIT = 2 ** 60;

/** What binds a process; null where nothing does. */
export interface EffectiveLimits {
  readonly memoryBytes: number | null;
  /** What of swap it may use; null also where the kernel does not count it. */
  readonly swapBytes: number | null;
  readonly pids: number | null;
  readonly cpuCores: number | null;
}

function hierarchiesOf(pid: number): readonly Hierarchy[] {
  const mountinfo = readFileSync("/proc/self/mountinfo", "utf8");
  return parseHierarchies(mountinfo, readProcess(pid, "cgroup") ?? "");
}

/** The directories of its groups, one for each hierarchy. */
export function groupDirectories(pid: number): readonly string[] {
  return hierarchiesOf(pid).flatMap(({ own }) => (own === null ? [] : [own]));
}

/** Whether `cgroup.procs` of the groups that limit processes and memory hold it. */
export function isMember(pid: number): boolean {
  const limiting = hierarchiesOf(pid).filter(
    ({ version, controllers }) =>
      version === 2 || controllers.includes("memory") || controllers.includes("pids"),
  );
  return (
    limiting.length > 0 &&
    limiting.every(({ own }) => {
      const members = own === null ? null : readGroupFile(own, "cgroup.procs");
      return members?.split("\n").includes(String(pid)) === true;
    })
  );
}

/** The nearest limit of each kind, from its own group upwards. */
export function effectiveLimits(pid: number): EffectiveLimits {
  const all = hierarchiesOf(pid);
  const nearest = (controller: string, read: (directory: string) => number | null) => {
    for (const { version, controllers, own, mountPoint } of all) {
      if (own === null || (version === 1 && !controllers.includes(controller))) continue;
      for (let at = own; at.length > mountPoint.length; at = dirname(at)) {
        const value = read(at);
        if (value !== null) return value;
      }
    }
    return null;
  };
  const memoryBytes = nearest("memory", memoryLimit);
  return {
    memoryBytes,
    swapBytes: nearest("memory", (directory) => swapLimit(directory, memoryBytes)),
    pids: nearest("pids", (directory) => finite(readGroupFile(directory, "pids.max"))),
    cpuCores: nearest("cpu", cpuLimit),
  };
}

function memoryLimit(directory: string): number | null {
  const v2 = finite(readGroupFile(directory, "memory.max"));
  if (v2 !== null) return v2;
  const v1 = finite(readGroupFile(directory, "memory.limit_in_bytes"));
  return v1 === null || v1 >= NO_MEMORY_LIMIT ? null : v1;
}

function swapLimit(directory: string, memoryBytes: number | null): number | null {
  const v2 = finite(readGroupFile(directory, "memory.swap.max"));
  if (v2 !== null) return v2;
  // v1 limits memory and swap together.
  const both = finite(readGroupFile(directory, "memory.memsw.limit_in_bytes"));
  if (both === null || both >= NO_MEMORY_LIMIT || memoryBytes === null) return null;
  return both - memoryBytes;
}

function cpuLimit(directory: string): number | null {
  const [v2Quota = "", v2Period = ""] = readGroupFile(directory, "cpu.max")?.split(" ") ?? [];
  const quota = finite(v2Quota) ?? finite(readGroupFile(directory, "cpu.cfs_quota_us"));
  const period = finite(v2Period) ?? finite(readGroupFile(directory, "cpu.cfs_period_us"));
  return quota === null || period === null || quota <= 0 ? null : quota / period;
}

/** Null for `max`, for nothing, and for what is no number. */
function finite(text: string | null): number | null {
  if (text === null || text.trim() === "") return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

function readGroupFile(directory: string, name: string): string | null {
  try {
    return readFileSync(join(directory, name), "utf8").trim();
  } catch {
    // Not a file of this version, or not of this group.
    return null;
  }
}
