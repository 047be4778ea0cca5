/**
 * What differs for an engine without root. The one id that may be mapped into a sandbox is the
 * server's own (user_namespaces(7)), so nothing is taken from a range, and sandboxes of one server
 * are not kept apart by their ids.
 */

import { accessSync, constants } from "node:fs";
import { CprgError } from "../core/errors.ts";
import type { CgroupHost } from "./cgroup-hierarchy.ts";
import type { EngineMode, EngineOptions } from "./engine-contract.ts";
import type { IdSource } from "./ids.ts";

/**
 * The mode that a wish means for a user: root's namespaces, or those of anybody.
 *
 * @throws CprgError when root's are asked for by somebody else
 */
export function modeFor(wish: EngineOptions["mode"], uid: number): EngineMode {
  if (wish === "auto") return uid === 0 ? "ns" : "rootless";
  if (wish !== "ns" || uid === 0) return wish;
  throw new CprgError("failed_precondition", "Cannot use mode ns: this process is not root", {
    reason: "NOT_ROOT",
    hint: "Start it as root (sudo), or use the sandboxes of a user: --sandbox rootless",
  });
}

/** The server's own id, for process 1 and for programs. */
export function ownIds(uid: number): IdSource {
  return { take: () => ({ init: uid, program: uid, release: () => undefined }) };
}

/** Whether a path can be reached and read by this user, and so by a sandbox of theirs. */
export function isReachable(path: string): boolean {
  return isAllowed(path, constants.R_OK);
}

/** Groups of another user's (cgroups(7), "delegation") are none that we can use. */
export function checkDelegated(host: CgroupHost): void {
  const groups =
    host.version === "v2"
      ? [host.base]
      : [host.memory, host.cpu, host.pids, ...(host.unified === null ? [] : [host.unified])];
  const closed = groups.find((group) => !isAllowed(group, constants.W_OK));
  if (closed === undefined) return;
  throw new CprgError("failed_precondition", `Cannot limit sandboxes: ${closed} is not ours`, {
    reason: "CGROUP",
    hint: delegationFix(host.version),
  });
}

/** How a user gets groups. */
export function delegationFix(version: CgroupHost["version"]): string {
  return version === "v2"
    ? "Start it in a delegated group: systemd-run --user --scope -p Delegate=yes cprg …"
    : "As root, make a group in memory, cpu and pids, give it to this user (chown -R), start cprg in it; or boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)";
}

function isAllowed(path: string, mode: number): boolean {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    // Not there, or not ours.
    return false;
  }
}
