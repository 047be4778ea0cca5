/**
 * Removing what dead instances left: the processes in their groups, the groups, and their
 * directories. Nothing of an instance that lives is touched.
 */

import { statfsSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../core/log.ts";
import { childGroups, hasGroupFile, readPids, removeGroup } from "./cgroup-files.ts";
import { type DeadInstance, findDead } from "./instance.ts";
import { killEach, killUnified } from "./kill-group.ts";
import type { Native } from "./native.ts";

/** Rounds of killing before a group is given up, and the pause between two. */
const KILL_ROUNDS_MAX = 500;
const KILL_PAUSE_MS = 10;
const DEPTH_MAX = 8;
/** Types of file systems (statfs(2)): cgroup of version 1, and of version 2. */
const CGROUP_MAGIC: readonly number[] = [0x27e0eb, 0x63677270];

/** Reaps every dead instance of a run directory. Call within the gate. */
export async function reapDead(native: Native, runDir: string, log: Log): Promise<void> {
  for (const dead of findDead(native, runDir)) await reapOne(native, dead, log);
}

async function reapOne(native: Native, dead: DeadInstance, log: Log): Promise<void> {
  // Whoever may write there is root; what is checked here is that a damaged file harms nobody.
  const groups = dead.groups.filter((group) => basename(group) === dead.id && isGroup(group));
  let killed = 0;
  for (const group of groups) killed += await empty(native, group);
  for (const group of groups) await removeGroup(group);
  dead.close();
  log.info("reaped a dead instance", { instance: dead.id, killed });
}

/** Whether a path is a control group: elsewhere, cgroup.procs could be a list of anybody's pids. */
function isGroup(path: string): boolean {
  try {
    return CGROUP_MAGIC.includes(statfsSync(path).type);
  } catch {
    // It is gone already.
    return false;
  }
}

/** Kills what is in a group and beneath it, until nothing is. */
async function empty(native: Native, group: string): Promise<number> {
  let killed = 0;
  for (let round = 0; round < KILL_ROUNDS_MAX; round += 1) {
    const pids = pidsBeneath(group);
    if (pids.length === 0) return killed;
    killed = Math.max(killed, pids.length);
    if (hasGroupFile(group, "cgroup.events")) killUnified(native, group);
    else killAll(native, group);
    await sleep(KILL_PAUSE_MS);
  }
  return killed;
}

function pidsBeneath(group: string, depth = 0): number[] {
  const below = depth < DEPTH_MAX ? childGroups(group) : [];
  return [
    ...readPids(group),
    ...below.flatMap((name) => pidsBeneath(join(group, name), depth + 1)),
  ];
}

function killAll(native: Native, group: string, depth = 0): void {
  killEach(native, group);
  if (depth >= DEPTH_MAX) return;
  for (const name of childGroups(group)) killAll(native, join(group, name), depth + 1);
}
