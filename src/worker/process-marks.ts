/**
 * Which processes of the host belong to an exec that has no sandbox. Each gets a variable that its
 * descendants inherit, also those that left its process group and lost their parent. A program that
 * takes the variable out of its environment and detaches itself is found no more: SECURITY.md.
 */

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { descendantsOf, isAlive, isWithoutEnvironment } from "../sandbox/process-tree.ts";

/** Name of the variable. */
export const MARK = "CPRG_EXEC";

/** Rounds of killing what a dying tree still forks, and the pause between two. */
const ROUNDS_MAX = 400;
const PAUSE_MS = 2;
/** Rounds that found nothing but could not be sure of it: on a busy host, processes always come and go. */
const UNSURE_ROUNDS_MAX = 10;

/**
 * Kills everything that belongs to an exec, again and again until nothing does.
 *
 * @param mark of the exec with a NUL behind it, or the beginning of the marks of several
 * @param pid of its main process while that has not been reaped, else null
 * @returns pids that were killed; what could not be killed is left after a bound
 */
export async function killMarked(mark: string, pid: number | null): Promise<ReadonlySet<number>> {
  const killed = new Set<number>();
  let unsureRounds = 0;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    // Stopped first: a tree in which nothing moves has no child that is not seen.
    const { found, isSure } = markedProcesses(mark, pid);
    // A dying process has no environment any more before it is dead.
    if (found.size === 0 && ![...killed].some(isAlive)) {
      if (isSure || unsureRounds >= UNSURE_ROUNDS_MAX) break;
      unsureRounds += 1;
    }
    for (const other of found) send(other, "SIGSTOP");
    for (const other of [...found, ...markedProcesses(mark, pid).found]) {
      killed.add(other);
      send(other, "SIGKILL");
    }
    await sleep(PAUSE_MS);
  }
  return killed;
}

interface Search {
  /** Live processes whose environment has the mark, the main one, and what is beneath that. */
  readonly found: ReadonlySet<number>;
  /** False where a process could not be told: another look may find more. */
  readonly isSure: boolean;
}

function markedProcesses(mark: string, pid: number | null): Search {
  const beneath = pid === null ? [] : [pid, ...descendantsOf(pid)];
  const found = new Set(beneath.filter(isAlive));
  const needle = Buffer.from(`\0${MARK}=${mark}`);
  let isSure = true;
  for (const name of readdirSync("/proc")) {
    const other = Number(name);
    if (!Number.isInteger(other) || other === process.pid || found.has(other)) continue;
    const environment = environmentOf(other);
    // It may have left a child that is younger than the list.
    if (environment === null || isBecoming(other, environment)) isSure = false;
    else if (environment.includes(needle) && isAlive(other)) found.add(other);
  }
  return { found, isSure };
}

/** With a NUL before it; null when the process ended since it was listed, empty when it is another user's. */
function environmentOf(pid: number): Buffer | null {
  try {
    return Buffer.concat([Buffer.of(0), readFileSync(`/proc/${pid}/environ`)]);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EACCES" ? Buffer.alloc(0) : null;
  }
}

/** In the middle of execve(2) a process has its new memory, and nowhere an environment yet. */
function isBecoming(pid: number, environment: Buffer): boolean {
  return environment.length === 1 && isWithoutEnvironment(pid) && isAlive(pid);
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}
