/**
 * Claiming a group on cgroup v2 under which ours may be made. The kernel lets a group pass
 * controllers on only while no process is in it, and processes that are not ours are not ours to
 * move.
 */

import { basename, dirname, join } from "node:path";
import { CprgError } from "../core/errors.ts";
import { hasGroupFile, makeGroup, readGroup, readPids, writeGroup } from "./cgroup-files.ts";
import { type Hierarchy, namedGroup, noSuchGroup, type V2Host } from "./cgroup-hierarchy.ts";
import { errnoName, errnoOf } from "./steps.ts";

/** The group that the server moves itself into. */
const SERVER_GROUP = "cprg-server";
const CONTROLLERS = ["memory", "pids", "cpu"] as const;
const SCOPE_FIX =
  "Start it in a group of its own: `systemd-run --scope -p Delegate=yes cprg …`, a unit with Delegate=yes, or name an empty group with CPRG_CGROUP";

/**
 * The group to use, with its controllers passed on.
 *
 * @throws CprgError naming what is in the way
 */
export function claimV2Base(hierarchy: Hierarchy, parent: string | undefined): V2Host {
  const host = findV2Base(hierarchy, parent);
  claim(host.base);
  return host;
}

/** The group that would be claimed; nothing is changed. @throws CprgError naming what is in the way */
export function findV2Base(hierarchy: Hierarchy, parent: string | undefined): V2Host {
  if (parent !== undefined) {
    const base = namedGroup(hierarchy, parent);
    if (!hasGroupFile(base, "cgroup.procs")) throw noSuchGroup(base);
    return { version: "v2", base, note: null };
  }
  if (hierarchy.own === null) {
    throw problem("the server's own group is outside of what is mounted", SCOPE_FIX);
  }
  return findAtOrAbove(beforeMove(hierarchy.own), hierarchy.mountPoint);
}

/** Where this process was before an engine in it, or in what started it, moved it. */
function beforeMove(own: string): string {
  return basename(own) === SERVER_GROUP ? dirname(own) : own;
}

/** Where the own group holds others, one above it will do, if those in between bound nothing. */
function findAtOrAbove(own: string, top: string): V2Host {
  const foreign = foreignPids(own);
  if (foreign.length === 0 || own === top) return { version: "v2", base: own, note: null };
  for (let below = own; below !== top; below = dirname(below)) {
    if (isBounded(below)) break;
    const base = dirname(below);
    if (base !== top && foreignPids(base).length > 0) continue;
    return {
      version: "v2",
      base,
      note: `${own} holds other processes and no limits: groups are made in ${base}`,
    };
  }
  throw problem(
    `${own} holds processes that are not the server's: ${foreign.slice(0, 8).join(" ")}`,
    SCOPE_FIX,
  );
}

function foreignPids(directory: string): number[] {
  return readPids(directory).filter((pid) => pid !== process.pid);
}

function isBounded(directory: string): boolean {
  return ["memory.max", "memory.high", "pids.max", "cpu.max"].some(
    (file) => hasGroupFile(directory, file) && !readGroup(directory, file).startsWith("max"),
  );
}

function claim(base: string): void {
  const available = readGroup(base, "cgroup.controllers").split(" ");
  const absent = CONTROLLERS.filter((name) => !available.includes(name));
  if (absent.length > 0) {
    throw problem(`${base} has no ${absent.join(", ")} controller`, SCOPE_FIX);
  }
  try {
    if (readPids(base).includes(process.pid) && hasGroupFile(base, "cgroup.type")) {
      const server = join(base, SERVER_GROUP);
      makeGroup(server, true);
      writeGroup(server, "cgroup.procs", String(process.pid));
    }
    writeGroup(base, "cgroup.subtree_control", CONTROLLERS.map((name) => `+${name}`).join(" "));
  } catch (error) {
    const errno = CprgError.is(error) ? (error.setup?.errno ?? 0) : errnoOf(error);
    throw problem(`${base} cannot pass controllers on: ${errnoName(errno)}`, SCOPE_FIX);
  }
}

function problem(what: string, hint: string): CprgError {
  return new CprgError("failed_precondition", `Cannot limit sandboxes: ${what}`, {
    reason: "CGROUP",
    hint,
  });
}
