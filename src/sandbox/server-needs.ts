/** What decides on this host about the capabilities that a server keeps. */

import { readFileSync, statSync } from "node:fs";
import { capabilityMask } from "./capability-names.ts";
import { groupParents } from "./cgroup-host.ts";
import { userNamespaceRule } from "./kernel.ts";
import type { ServerNeeds } from "./server-capabilities.ts";

/** What a server is going to do. */
export interface ServerPlan {
  /** As for the engine. */
  readonly cgroupParent?: string;
  /** Port that it listens on, 0 for any free one. */
  readonly port: number;
}

const OWNER_WRITES = 0o200;
/** Ports below are root's, where the kernel has no setting (ip(7)). */
const DEFAULT_PORT_START = 1024;

/**
 * Looks at the host.
 *
 * @param bounding the set beyond which nothing can be had
 */
export function serverNeeds(plan: ServerPlan, bounding: bigint): ServerNeeds {
  return {
    userNamespaces: userNamespaceRule(),
    hasClosedGroup: parents(plan).some(isClosed),
    hasReadSearch: (bounding & capabilityMask(["DAC_READ_SEARCH"])) !== 0n,
    hasLowPort: plan.port > 0 && plan.port < portStart(),
  };
}

function parents({ cgroupParent }: ServerPlan): readonly string[] {
  try {
    return groupParents(cgroupParent === undefined ? {} : { cgroupParent });
  } catch {
    // The engine says what is wrong with them, or does without where that is allowed.
    return [];
  }
}

function isClosed(directory: string): boolean {
  const status = statSync(directory, { throwIfNoEntry: false });
  if (status === undefined) return false;
  return status.uid !== process.geteuid?.() || (status.mode & OWNER_WRITES) === 0;
}

function portStart(): number {
  try {
    return Number(readFileSync("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"));
  } catch {
    // Before Linux 4.11, or /proc/sys is hidden.
    return DEFAULT_PORT_START;
  }
}
