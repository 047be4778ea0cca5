/**
 * Which capabilities the server keeps, and why: the one table. What is not in it is given up at
 * start (`reduce-privileges.ts`). test/e2e and test/sandbox show what breaks without each.
 *
 * Not needed where user namespaces are free: whoever made one has every capability in it
 * (user_namespaces(7)), so that clone, unshare, mounts, signals and wait need none on the host.
 */

import type { CapabilityName } from "./capability-names.ts";
import type { UserNamespaceRule } from "./kernel.ts";

/** What decides about the set. */
export interface ServerNeeds {
  readonly userNamespaces: UserNamespaceRule;
  /** A group beneath which ours are made is closed even to its owner, or is not the server's. */
  readonly hasClosedGroup: boolean;
  /** DAC_READ_SEARCH can be had; containers often leave it out. */
  readonly hasReadSearch: boolean;
  /** The port to listen on is one that the kernel keeps for root. */
  readonly hasLowPort: boolean;
}

interface ServerCapability {
  readonly name: CapabilityName;
  readonly isNeeded: (needs: ServerNeeds) => boolean;
}

const always = (): boolean => true;
const withoutNamespaces = (needs: ServerNeeds): boolean => needs.userNamespaces === "forbidden";
/**
 * Without user namespaces process 1 is the host's root and makes mount points in directories of the
 * program. The topmost group of a hierarchy has mode 0555: not even its owner makes groups there.
 */
const overridesModes = (needs: ServerNeeds): boolean =>
  withoutNamespaces(needs) || needs.hasClosedGroup || !needs.hasReadSearch;

/** The table. */
export const SERVER_CAPABILITIES: readonly ServerCapability[] = [
  // Process 1, as the host's root, gives the program its directories.
  { name: "CHOWN", isNeeded: withoutNamespaces },
  // As below, and what `overridesModes` says.
  { name: "DAC_OVERRIDE", isNeeded: overridesModes },
  // Artifacts belong to an id of the sandbox, and programs make them as private as they like. The
  // other one allows more, so that this one is not needed beside it.
  { name: "DAC_READ_SEARCH", isNeeded: (needs) => !overridesModes(needs) },
  // Process 1 signals the program, which has another id; the server what is left of it.
  { name: "KILL", isNeeded: withoutNamespaces },
  // Writing the id maps of a sandbox; without them process 1 takes the program's id itself.
  { name: "SETGID", isNeeded: always },
  { name: "SETUID", isNeeded: always },
  // Process 1 empties its bounding set.
  { name: "SETPCAP", isNeeded: withoutNamespaces },
  // Listening below net.ipv4.ip_unprivileged_port_start.
  { name: "NET_BIND_SERVICE", isNeeded: (needs) => needs.hasLowPort },
  // Making namespaces and mounts on the host; or user namespaces, where the host reserves them.
  { name: "SYS_ADMIN", isNeeded: (needs) => needs.userNamespaces !== "free" },
];

/** What a server with these needs keeps. */
export function neededCapabilities(needs: ServerNeeds): readonly CapabilityName[] {
  return SERVER_CAPABILITIES.filter(({ isNeeded }) => isNeeded(needs)).map(({ name }) => name);
}
