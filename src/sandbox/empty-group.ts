/** Waiting until nothing of an exec is left: neither a process in its group nor a zombie of it. */

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import { nextTurn } from "../core/turn.ts";
import type { ExecGroup } from "./cgroup.ts";

/** Looks at the group: in the first turns at once, then with a pause, killing again now and then. */
const SPINS_MAX = 3;
const LOOKS_MAX = 20_000;
const PAUSE_MS = 1;
const KILL_EVERY = 10;
/** Looks at the zombies of process 1, which reaps them as soon as it runs. */
const ZOMBIE_LOOKS_MAX = 2000;
/** Where `num_threads` is, counted from `state` (proc_pid_stat(5)). */
const THREADS_FIELD = 17;

/** How a group is emptied. */
export interface EmptyOptions {
  /** Host pid of process 1, who inherits every orphan. */
  readonly initPid: number;
  kill(): void;
}

/**
 * Kills what is left in a group and waits until it is empty and reaped.
 *
 * @throws CprgError when something in it cannot be killed
 */
export async function emptyGroup(group: ExecGroup, options: EmptyOptions): Promise<void> {
  let looks = 0;
  for (; !group.isEmpty(); looks += 1) {
    if (looks >= LOOKS_MAX) {
      throw new CprgError("internal", "Cannot end a program: its processes do not die", {
        reason: "SANDBOX_STUCK",
        hint: "A process in it sleeps uninterruptibly; see dmesg",
      });
    }
    if (looks % KILL_EVERY === 0) options.kill();
    await pause(looks);
  }
  for (let tries = 0; tries < ZOMBIE_LOOKS_MAX && hasZombie(options.initPid); tries += 1) {
    await pause(tries);
  }
}

function pause(turn: number): Promise<void> {
  return turn < SPINS_MAX ? nextTurn() : sleep(PAUSE_MS).then(() => undefined);
}

/** Whether a dead child of process 1 waits to be reaped (proc_pid_task_tid_children(5)). */
function hasZombie(initPid: number): boolean {
  try {
    const children = readFileSync(`/proc/${initPid}/task/${initPid}/children`, "utf8").trim();
    return children !== "" && children.split(" ").some(isZombie);
  } catch {
    // Process 1 is gone and has taken everything with it, or the kernel does not list children.
    return false;
  }
}

/** A process whose main thread alone has ended looks like one, but has threads and cannot be reaped. */
function isZombie(pid: string): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = status.slice(status.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" && Number(fields[THREADS_FIELD]) <= 1;
  } catch {
    // Reaped in between.
    return false;
  }
}
