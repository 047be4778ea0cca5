/**
 * One run of the engine on this host: an id, and a directory in the run directory whose lock tells
 * others that it lives.
 *
 *     <run>/instances/<id>/lock      flock'd while the instance lives
 *     <run>/instances/<id>/groups    its cgroup directories, one a line
 */

import {
  closeSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import { isId, newId } from "../core/ids.ts";
import type { Native } from "./native.ts";
import { checkPrivate } from "./private-directory.ts";

/** Tries for the lock that start-ups share, and the pause between two. */
const GATE_TRIES_MAX = 1000;
const GATE_PAUSE_MS = 10;

/** A living instance. */
export interface Instance {
  readonly id: string;
  /** Notes where its groups are, for whoever reaps it. */
  recordGroups(directories: readonly string[]): void;
  /** Gives up the lock and removes the directory. */
  close(): void;
}

/**
 * Registers an instance, after `beforehand` has run; start-ups on one run directory go one at a
 * time, so that a half-made instance is never taken for a dead one.
 *
 * @throws CprgError when the run directory cannot be used, with the fix
 */
export async function openInstance(
  native: Native,
  runDir: string,
  beforehand: () => Promise<void>,
): Promise<Instance> {
  prepareRunDir(runDir);
  const gate = await enterGate(native, runDir);
  try {
    await beforehand();
    return register(native, runDir);
  } finally {
    closeSync(gate);
  }
}

function register(native: Native, runDir: string): Instance {
  const id = newId();
  const directory = join(runDir, "instances", id);
  mkdirSync(directory, { mode: 0o700 });
  const lock = takeLock(native, join(directory, "lock"));
  if (lock === null) throw new CprgError("internal", `Cannot lock the new instance ${id}`);
  return {
    id,
    recordGroups: (directories) => {
      writeFileSync(join(directory, "groups"), directories.join("\n"));
    },
    close: () => {
      rmSync(directory, { recursive: true, force: true });
      closeSync(lock);
    },
  };
}

function prepareRunDir(runDir: string): void {
  try {
    mkdirSync(join(runDir, "instances"), { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new CprgError("failed_precondition", `Cannot use the run directory ${runDir}`, {
      reason: "RUN_DIR",
      hint: "Name a directory with CPRG_RUN_DIR that the server may write to",
      cause,
    });
  }
  for (const directory of [runDir, join(runDir, "instances")]) checkRunDir(directory);
}

/** What is noted there is killed and removed by root. */
function checkRunDir(directory: string): void {
  checkPrivate(directory, { op: "use the run directory", reason: "RUN_DIR" });
}

/** The first directory on the way to a path that other users may not pass, or null. */
export function closedAncestor(path: string): string | null {
  for (let at = path; at !== dirname(at); at = dirname(at)) {
    const status = statSync(at, { throwIfNoEntry: false });
    if (status?.isDirectory() === true && (status.mode & 0o001) === 0) return at;
  }
  return null;
}

/** The lock of a directory, waited for in a bounded way; closing it gives it up. */
export async function enterGate(native: Native, runDir: string): Promise<number> {
  for (let tries = 0; tries < GATE_TRIES_MAX; tries += 1) {
    const gate = takeLock(native, join(runDir, "gate"));
    if (gate !== null) return gate;
    await sleep(GATE_PAUSE_MS);
  }
  throw new CprgError("unavailable", `Cannot start: another server has been starting in ${runDir}`);
}

/** As {@link Native.lock}. @throws CprgError where the run directory holds no lock */
function takeLock(native: Native, path: string): number | null {
  try {
    return native.lock(path);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new CprgError("failed_precondition", `Cannot use the run directory: ${why}`, {
      reason: "RUN_DIR",
      hint: "Name a directory with CPRG_RUN_DIR on a file system that has locks (flock(2)), with no links in it",
      cause,
    });
  }
}

/** An instance whose process is gone; its lock is held until it is closed. */
export interface DeadInstance {
  readonly id: string;
  /** The groups that it noted. */
  readonly groups: readonly string[];
  /** Removes what is left of its directory. */
  close(): void;
}

/** Ids of every instance that is registered, living or not. */
export function listInstances(runDir: string): string[] {
  try {
    return readdirSync(join(runDir, "instances")).filter(isId);
  } catch {
    // No instance has ever used this run directory.
    return [];
  }
}

/**
 * The instances that no longer live. Call within the gate.
 *
 * @throws CprgError when one of the directories may be somebody else's work
 */
export function findDead(native: Native, runDir: string): DeadInstance[] {
  const found = listInstances(runDir)
    .map((id) => ({ id, directory: join(runDir, "instances", id) }))
    // One that has just ended takes its directory with it, without waiting for anybody.
    .filter(({ directory }) => statSync(directory, { throwIfNoEntry: false }) !== undefined);
  for (const { directory } of found) checkRunDir(directory);
  return found.flatMap(({ id, directory }) => {
    const lock = takeLock(native, join(directory, "lock"));
    if (lock === null) return [];
    return [
      {
        id,
        groups: readGroups(directory),
        close: () => {
          rmSync(directory, { recursive: true, force: true });
          closeSync(lock);
        },
      },
    ];
  });
}

function readGroups(directory: string): string[] {
  try {
    return readFileSync(join(directory, "groups"), "utf8").split("\n").filter(Boolean);
  } catch {
    // It died before it made any.
    return [];
  }
}
