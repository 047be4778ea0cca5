/**
 * Which processes of the host belong to an exec that has no sandbox. Each gets a variable that its
 * descendants inherit, also those that left its process group and lost their parent. A program that
 * takes the variable out of its environment and detaches itself is found no more: SECURITY.md.
 */

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { descendantsOf, isAlive } from "../sandbox/process-tree.ts";

/** Name of the variable. */
export const MARK = "CPRG_EXEC";

/** Rounds of killing what a dying tree still forks, and the pause between two. */
const ROUNDS_MAX = 400;
const PAUSE_MS = 2;

/**
 * Kills everything that belongs to an exec, again and again until nothing does.
 *
 * @param mark of the exec with a NUL behind it, or the beginning of the marks of several
 * @param pid of its main process while that has not been reaped, else null
 * @returns pids that were killed; what could not be killed is left after a bound
 */
export async function killMarked(mark: string, pid: number | null): Promise<ReadonlySet<number>> {
  const killed = new Set<number>();
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    // Stopped first: a tree in which nothing moves has no child that is not seen.
    const found = markedProcesses(mark, pid);
    // A dying process has no environment any more before it is dead.
    if (found.size === 0 && ![...killed].some(isAlive)) break;
    for (const other of found) send(other, "SIGSTOP");
    for (const other of [...found, ...markedProcesses(mark, pid)]) {
      killed.add(other);
      send(other, "SIGKILL");
    }
    await sleep(PAUSE_MS);
  }
  return killed;
}

/** Live processes whose environment has this mark, the main one, and what is beneath that. */
function markedProcesses(mark: string, pid: number | null): Set<number> {
  const beneath = pid === null ? [] : [pid, ...descendantsOf(pid)];
  const found = new Set(beneath.filter(isAlive));
  const needle = Buffer.from(`\0${MARK}=${mark}`);
  for (const name of readdirSync("/proc")) {
    const other = Number(name);
    if (!Number.isInteger(other) || other === process.pid || found.has(other)) continue;
    if (hasVariable(other, needle) && isAlive(other)) found.add(other);
  }
  return found;
}

function hasVariable(pid: number, needle: Buffer): boolean {
  try {
    const environ = readFileSync(`/proc/${pid}/environ`);
    return Buffer.concat([Buffer.of(0), environ]).includes(needle);
  } catch {
    // It has ended, or is another user's.
    return false;
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}
