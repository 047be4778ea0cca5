/**
 * Removing a tree through descriptors: no link is followed, nothing outside is touched, and the
 * descriptors that are open at once are bounded however deep the tree is.
 */

import {
  chmodSync,
  closeSync,
  constants,
  readdirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from "node:fs";
import { TurnShare } from "../core/turn.ts";
import type { Native } from "../sandbox/native.ts";
import type { Named } from "./confined-roots.ts";
import { errnoOf } from "./file-error.ts";

const O_PATH = 0o10000000;
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Directories open at once; what is deeper is moved up to the top first. */
const DEPTH_MAX = 32;
/** Times that a directory may be full again when it has been emptied. */
const ROUNDS_MAX = 64;

interface Walk {
  readonly native: Native;
  readonly share: TurnShare;
  readonly topFd: number;
}

/**
 * Removes what is at a name.
 *
 * @returns false when nothing was there
 * @throws what the kernel says; what was removed by then is gone
 */
export async function removeTree(native: Native, { dirFd, name, path }: Named): Promise<boolean> {
  if (unlinked(path)) return true;
  const fd = openToEmpty(native, dirFd, name);
  if (fd === null) return false;
  try {
    await empty({ native, share: new TurnShare(), topFd: fd }, fd, 0);
  } finally {
    closeSync(fd);
  }
  rmdirSync(path);
  return true;
}

/** False for a directory. */
function unlinked(path: string): boolean {
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    // unlink(2): EISDIR on Linux, EPERM on file systems that say it as POSIX does.
    const errno = errnoOf(error);
    if (errno === "EISDIR" || errno === "EPERM" || errno === "ENOENT") return false;
    throw error;
  }
}

function openToEmpty(native: Native, dirFd: number, name: string): number | null {
  try {
    return native.openBeneath(dirFd, name, DIRECTORY);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return null;
    if (errnoOf(error) !== "EACCES") throw error;
  }
  const fd = native.openBeneath(dirFd, name, O_PATH | DIRECTORY);
  try {
    // Of what is open, whatever its name leads to by now.
    chmodSync(`/proc/self/fd/${fd}`, 0o700);
  } finally {
    closeSync(fd);
  }
  return native.openBeneath(dirFd, name, DIRECTORY);
}

async function empty(walk: Walk, fd: number, depth: number): Promise<void> {
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const names = readdirSync(`/proc/self/fd/${fd}`, { encoding: "buffer" });
    if (names.length === 0) return;
    for (const name of names) {
      await walk.share.spend();
      await removeName(walk, { fd, name: name as Buffer, depth });
    }
  }
}

async function removeName(
  walk: Walk,
  { fd, name, depth }: { readonly fd: number; readonly name: Buffer; readonly depth: number },
): Promise<void> {
  const path = pathIn(fd, name);
  try {
    unlinkSync(path);
    return;
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT") return;
    if (errno !== "EISDIR" && errno !== "EPERM") throw error;
  }
  if (depth >= DEPTH_MAX) {
    renameSync(path, pathIn(walk.topFd, Buffer.from(`.cprg-deep-${crypto.randomUUID()}`)));
    return;
  }
  // A name that is no UTF-8 cannot be handed to the shim: it gets another one first.
  const plainName = `.cprg-gone-${crypto.randomUUID()}`;
  renameSync(path, pathIn(fd, Buffer.from(plainName)));
  const inner = openToEmpty(walk.native, fd, plainName);
  if (inner === null) return;
  try {
    await empty(walk, inner, depth + 1);
  } finally {
    closeSync(inner);
  }
  rmdirSync(pathIn(fd, Buffer.from(plainName)));
}

function pathIn(fd: number, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${fd}/`), name]);
}
