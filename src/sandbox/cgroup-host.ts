/**
 * Where on this host groups can be made: which version has the controllers, and beneath which group
 * ours belong. They go under the server's own group, so that whatever bounds the server (a
 * container, a unit) bounds its sandboxes too.
 */

import { accessSync, constants, readFileSync } from "node:fs";
import { CprgError } from "../core/errors.ts";
import { hasGroupFile, readCount, readGroup } from "./cgroup-files.ts";
import {
  type CgroupHost,
  type Hierarchy,
  namedGroup,
  noSuchGroup,
  parseHierarchies,
  type V1Host,
} from "./cgroup-hierarchy.ts";
import { claimV2Base, findV2Base } from "./cgroup-v2-base.ts";
import { kernelAtLeast } from "./kernel.ts";

/** How to look for groups. */
export interface CgroupOptions {
  /**
   * A group that exists and is ours to use, as a path in each hierarchy (`/cprg.slice`) or beneath
   * /sys/fs/cgroup: `CPRG_CGROUP`.
   */
  readonly cgroupParent?: string;
}

/**
 * Finds where groups can be made. On v2 this moves the server itself into a group of its own when
 * that is what the kernel wants.
 *
 * @throws CprgError naming what is in the way, with the fix
 */
export function findCgroups(options: CgroupOptions = {}): CgroupHost {
  return findWith(claimV2Base, options);
}

/**
 * The groups beneath which {@link findCgroups} would have ours made; nothing is changed.
 *
 * @throws CprgError naming what is in the way
 */
export function groupParents(options: CgroupOptions = {}): readonly string[] {
  const host = findWith(findV2Base, options);
  if (host.version === "v2") return [host.base];
  const { memory, cpu, pids, cpuacct, unified } = host;
  return [memory, cpu, pids, cpuacct, unified].filter((place) => place !== null);
}

function findWith(inV2: typeof findV2Base, { cgroupParent }: CgroupOptions): CgroupHost {
  const hierarchies = parseHierarchies(
    readFileSync("/proc/self/mountinfo", "utf8"),
    readFileSync("/proc/self/cgroup", "utf8"),
  );
  const unified = hierarchies.find(({ version }) => version === 2);
  if (unified !== undefined && hasControllers(unified)) return inV2(unified, cgroupParent);
  return findV1(hierarchies, cgroupParent);
}

function hasControllers({ mountPoint }: Hierarchy): boolean {
  const names = hasGroupFile(mountPoint, "cgroup.controllers")
    ? readGroup(mountPoint, "cgroup.controllers").split(" ")
    : [];
  return names.includes("memory") && names.includes("pids");
}

function findV1(hierarchies: readonly Hierarchy[], parent: string | undefined): V1Host {
  const place = (name: string): string | null => {
    const hierarchy = hierarchies.find(({ controllers }) => controllers.includes(name));
    return hierarchy === undefined ? null : placeIn(hierarchy, parent);
  };
  const needed = (name: string): string => {
    const directory = place(name);
    if (directory !== null) return writable(directory);
    throw new CprgError("failed_precondition", `Cannot limit sandboxes: no ${name} controller`, {
      reason: "CGROUP",
      hint: `Mount cgroups with the ${name} controller (systemd hosts have them), or allow the missing layer: CPRG_ALLOW_MISSING=cgroup`,
    });
  };
  const unified = hierarchies.find(({ version }) => version === 2);
  const unifiedBase =
    unified === undefined || !kernelAtLeast(5, 14) ? null : unifiedPlace(unified, parent);
  const cpu = needed("cpu");
  return {
    version: unifiedBase === null ? "v1" : "hybrid",
    memory: needed("memory"),
    cpu,
    cpuCoresMax: coresOf(cpu),
    pids: needed("pids"),
    // Beside cgroup2, which counts CPU time without a controller, it is not needed.
    cpuacct: unifiedBase === null ? place("cpuacct") : null,
    unified: unifiedBase,
  };
}

/** Container engines mount the hierarchies read-only; whose the group is shows when it is used. */
function writable(directory: string): string {
  try {
    accessSync(directory, constants.W_OK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EROFS") return directory;
    throw new CprgError(
      "failed_precondition",
      `Cannot limit sandboxes: ${directory} is read-only`,
      {
        reason: "CGROUP",
        hint: "Mount it so that it can be written (container: --volume /sys/fs/cgroup:/sys/fs/cgroup:rw), or allow the missing layer: CPRG_ALLOW_MISSING=cgroup",
      },
    );
  }
  return directory;
}

/** A quota of -1, or none at all in the topmost group, is no bound (sched-bwc.rst). */
function coresOf(cpu: string): number {
  const quotaUs = readCount(cpu, "cpu.cfs_quota_us") ?? -1;
  const periodUs = readCount(cpu, "cpu.cfs_period_us") ?? 0;
  return quotaUs > 0 && periodUs > 0 ? quotaUs / periodUs : Number.POSITIVE_INFINITY;
}

function placeIn(hierarchy: Hierarchy, parent: string | undefined): string | null {
  if (parent === undefined) return hierarchy.own;
  const directory = namedGroup(hierarchy, parent);
  if (hasGroupFile(directory, "notify_on_release")) return directory;
  throw noSuchGroup(directory);
}

/** Where no controller is needed the own group will do, if a named one is not there. */
function unifiedPlace(hierarchy: Hierarchy, parent: string | undefined): string | null {
  const named = parent === undefined ? null : namedGroup(hierarchy, parent);
  for (const directory of [named, hierarchy.own]) {
    if (directory !== null && hasGroupFile(directory, "cgroup.procs")) return directory;
  }
  return null;
}
