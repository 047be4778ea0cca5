/** Reading, writing, making and removing groups: the part that both versions share. */

import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmdirSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import { errnoOf, stepError } from "./steps.ts";

/** Tries to remove a group that the kernel still holds, and the pause between two. */
const REMOVE_TRIES_MAX = 400;
const REMOVE_PAUSE_MS = 5;
/** Longest text of a limit: two numbers. */
const LIMIT_BYTES_MAX = 64;
/** Levels of groups beneath one that is removed. */
const REMOVE_DEPTH_MAX = 8;

/** Tries to make a group beneath one that others may remove. */
const SHARED_TRIES_MAX = 20;

const CGROUP_STEP = 17;

function groupError(error: unknown, subject: string): CprgError {
  if (CprgError.is(error)) return error;
  return stepError(
    { step: CGROUP_STEP, index: 0, errno: errnoOf(error) },
    { op: "limit a sandbox", subject, reason: "CGROUP" },
  );
}

/** Makes a group; one that is there already is an error unless `isShared`. */
export function makeGroup(directory: string, isShared = false): void {
  try {
    mkdirSync(directory, { mode: 0o755 });
  } catch (error) {
    if (isShared && (error as NodeJS.ErrnoException).code === "EEXIST") return;
    throw groupError(error, directory);
  }
}

/**
 * Makes a new group on another thread: the kernel makes and ends groups under one lock of the whole
 * system, and whoever waits for it would hold up every client of the server.
 */
export async function makeGroupAside(directory: string): Promise<void> {
  try {
    await mkdir(directory, { mode: 0o755 });
  } catch (error) {
    throw groupError(error, directory);
  }
}

/**
 * Makes an instance's group beneath the group that all instances share, and that one too: another
 * instance may remove it in between, when it was the last to use it.
 */
export function makeInstanceGroup(parent: string, own: string, prepare: () => void): void {
  for (let tries = 1; ; tries += 1) {
    try {
      makeGroup(parent, true);
      prepare();
      makeGroup(own);
      return;
    } catch (error) {
      const isRace = CprgError.is(error) && error.setup?.errnoName === "ENOENT";
      if (!isRace || tries >= SHARED_TRIES_MAX) throw error;
    }
  }
}

/** Removes the group that all instances share, if no other instance is there. */
export function removeSharedGroup(directory: string): void {
  tryRemove(directory);
}

/** Writes a value. @throws CprgError naming the file */
export function writeGroup(directory: string, file: string, value: string): void {
  const path = join(directory, file);
  try {
    writeFileSync(path, value);
  } catch (error) {
    throw groupError(error, path);
  }
}

/** Writes a value and reads it back: a limit that the kernel changed is no limit. */
export function setLimit(directory: string, file: string, value: string): void {
  const actual = writeAndRead(join(directory, file), value);
  if (actual === value) return;
  throw new CprgError(
    "failed_precondition",
    `Cannot limit a sandbox: ${join(directory, file)} is "${actual}" after writing "${value}"`,
    { reason: "CGROUP", hint: "A group above sets a smaller limit; see `cprg doctor`" },
  );
}

function writeAndRead(path: string, value: string): string {
  let fd = -1;
  try {
    fd = openSync(path, constants.O_RDWR);
    writeSync(fd, value);
    const bytes = new Uint8Array(LIMIT_BYTES_MAX);
    return new TextDecoder()
      .decode(bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0)))
      .trimEnd();
  } catch (error) {
    throw groupError(error, path);
  } finally {
    if (fd >= 0) closeSync(fd);
  }
}

/** A file's text without its last newline. */
export function readGroup(directory: string, file: string): string {
  return readFileSync(join(directory, file), "utf8").trimEnd();
}

/** Whether a group has a file. */
export function hasGroupFile(directory: string, file: string): boolean {
  return existsSync(join(directory, file));
}

/** A number that is alone in its file, or null when the file is missing. */
export function readCount(directory: string, file: string): number | null {
  try {
    const count = Number(readGroup(directory, file));
    return Number.isFinite(count) ? count : null;
  } catch {
    // The kernel has no such counter, or the group is gone.
    return null;
  }
}

/** A number of a `key value` file, or null. */
export function readKeyed(directory: string, file: string, key: string): number | null {
  let text: string;
  try {
    text = readGroup(directory, file);
  } catch {
    // The kernel has no such counter, or the group is gone.
    return null;
  }
  for (const line of text.split("\n")) {
    if (line.startsWith(key) && line[key.length] === " ") return Number(line.slice(key.length + 1));
  }
  return null;
}

/** Host pids in a group; none when it is gone. */
export function readPids(directory: string, file = "cgroup.procs"): number[] {
  try {
    const text = readGroup(directory, file);
    return text === "" ? [] : text.split("\n").map(Number);
  } catch {
    // The group is gone, and with it everything that was in it.
    return [];
  }
}

/** Opens a file of a group for writing; descriptors of node:fs are close-on-exec. */
export function openGroupFile(directory: string, file: string): number {
  try {
    return openSync(join(directory, file), constants.O_WRONLY);
  } catch (error) {
    throw groupError(error, join(directory, file));
  }
}

/** Opens a group itself, for CLONE_INTO_CGROUP. */
export function openGroup(directory: string): number {
  try {
    return openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    throw groupError(error, directory);
  }
}

/**
 * Removes a group and every group in it, waiting for the kernel to let go of processes that have
 * just ended. A group that is gone is no error.
 *
 * @throws CprgError when it stays
 */
export async function removeGroup(directory: string, depth = 0): Promise<void> {
  if (tryRemove(directory)) return;
  for (const child of depth < REMOVE_DEPTH_MAX ? childGroups(directory) : []) {
    await removeGroup(join(directory, child), depth + 1);
  }
  for (let tries = 0; tries < REMOVE_TRIES_MAX; tries += 1) {
    if (tryRemove(directory)) return;
    await sleep(REMOVE_PAUSE_MS);
  }
  const pids = readPids(directory);
  throw new CprgError(
    "internal",
    `Cannot remove the group ${directory}: ${pids.length} processes are in it`,
    { reason: "CGROUP_BUSY", hint: "Processes in uninterruptible sleep keep it; see dmesg" },
  );
}

function tryRemove(directory: string): boolean {
  try {
    rmdirSync(directory);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return true;
    if (code === "EBUSY" || code === "ENOTEMPTY") return false;
    throw groupError(error, directory);
  }
}

/** Names of the groups in a group. */
export function childGroups(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch {
    // Gone already.
    return [];
  }
}
