/** How much this host can give to all sandboxes together, where the operator does not say. */

import { readFileSync } from "node:fs";
import type { Capacity } from "./admission.ts";
import { readCount } from "./cgroup-files.ts";
import type { CgroupHost } from "./cgroup-hierarchy.ts";

/** Share of what is free that sandboxes may take; the rest keeps the host and the server alive. */
const SHARE = 0.8;
const MIB = 1024 * 1024;
const PIDS_MOST = 16_384;

/** Four fifths of the memory that is available here and of the outer group's limits. */
export function hostCapacity(cgroups: CgroupHost | null): Capacity {
  const outer = outerLimits(cgroups);
  const memoryBytes = Math.min(availableBytes(), outer.memoryBytes);
  const pids = Math.min(hostPids(), outer.pids);
  return {
    memMb: Math.max(1, Math.floor((memoryBytes * SHARE) / MIB)),
    pids: Math.max(1, Math.min(PIDS_MOST, Math.floor(pids * SHARE))),
  };
}

/** The cap of all instances on a host together, whatever each may have: a tenth stays free. */
export function sharedMemoryBytes(): number {
  const PAGE = 4096;
  return Math.floor((meminfo("MemTotal") * 0.9) / PAGE) * PAGE;
}

function availableBytes(): number {
  return meminfo("MemAvailable");
}

function meminfo(name: string): number {
  const text = readFileSync("/proc/meminfo", "utf8");
  const kib = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1];
  return kib === undefined ? Number.POSITIVE_INFINITY : Number(kib) * 1024;
}

function hostPids(): number {
  return Math.min(
    readCount("/proc/sys/kernel", "pid_max") ?? Number.POSITIVE_INFINITY,
    readCount("/proc/sys/kernel", "threads-max") ?? Number.POSITIVE_INFINITY,
  );
}

function outerLimits(cgroups: CgroupHost | null): { memoryBytes: number; pids: number } {
  if (cgroups === null) return { memoryBytes: Number.POSITIVE_INFINITY, pids: hostPids() };
  const isV2 = cgroups.version === "v2";
  const [memoryDir, pidsDir] = isV2 ? [cgroups.base, cgroups.base] : [cgroups.memory, cgroups.pids];
  const limit = readCount(memoryDir, isV2 ? "memory.max" : "memory.limit_in_bytes");
  const used = readCount(memoryDir, isV2 ? "memory.current" : "memory.usage_in_bytes");
  return {
    memoryBytes: limit === null ? Number.POSITIVE_INFINITY : Math.max(0, limit - (used ?? 0)),
    pids: readCount(pidsDir, "pids.max") ?? Number.POSITIVE_INFINITY,
  };
}
