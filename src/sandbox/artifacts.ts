/**
 * What a program left in /workspace/out, read from the host through a descriptor of the workspace.
 * The tree is hostile: only regular files count, no link is followed, and every bound is ours.
 */

import { closeSync, constants, fstatSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Artifact } from "../provider/contract.ts";
import { type Native, NativeError } from "./native.ts";
import { nextTurn } from "./turn.ts";

/** Files that are collected, names that are looked at, and how deep. */
export const ARTIFACTS_MAX = 10_000;
const NAMES_MAX = 200_000;
const DEPTH_MAX = 32;
/** Looked at before the event loop gets its turn. */
const NAMES_PER_TURN = 128;
const OUT = "out";
const CHUNK_BYTES = 128 * 1024;

const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Opening a FIFO or a device must neither wait nor do anything. */
const FILE_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
const O_CLOEXEC = 0o2000000;

/**
 * Regular files beneath /workspace/out, in the order of their names.
 *
 * @throws CprgError `resource_exhausted` beyond a bound
 */
export async function listArtifacts(
  native: Native,
  workspaceFd: number,
): Promise<readonly Artifact[]> {
  const found: Artifact[] = [];
  await visit({ native, workspaceFd, found, names: 0 }, OUT, 0);
  return found;
}

interface Walk {
  readonly native: Native;
  readonly workspaceFd: number;
  readonly found: Artifact[];
  names: number;
}

async function visit(walk: Walk, path: string, depth: number): Promise<void> {
  const fd = tryOpen(walk, path, DIRECTORY_FLAGS);
  if (fd === null) return;
  let names: string[];
  try {
    names = readdirSync(`/proc/self/fd/${fd}`).sort();
  } finally {
    closeSync(fd);
  }
  walk.names += names.length;
  if (walk.names > NAMES_MAX || depth > DEPTH_MAX) throw tooMany(path);
  for (const [index, name] of names.entries()) {
    if (index % NAMES_PER_TURN === NAMES_PER_TURN - 1) await nextTurn();
    await look(walk, join(path, name), depth);
  }
}

async function look(walk: Walk, path: string, depth: number): Promise<void> {
  const fd = tryOpen(walk, path, FILE_FLAGS);
  if (fd === null) return;
  const status = fstatSync(fd);
  closeSync(fd);
  if (status.isDirectory()) {
    await visit(walk, path, depth + 1);
  } else if (status.isFile()) {
    if (walk.found.length >= ARTIFACTS_MAX) throw tooMany(path);
    walk.found.push(artifact(walk, path, { size: status.size, mode: status.mode & 0o777 }));
  }
}

/** Null for what cannot be opened as a plain file or directory: links, sockets, what is gone. */
function tryOpen({ native, workspaceFd }: Walk, path: string, flags: number): number | null {
  try {
    return native.openBeneath(workspaceFd, path, flags | O_CLOEXEC);
  } catch (error) {
    if (error instanceof NativeError) return null;
    throw error;
  }
}

function artifact(
  walk: Walk,
  path: string,
  { size, mode }: { readonly size: number; readonly mode: number },
): Artifact {
  return {
    path: path.slice(OUT.length + 1),
    size,
    mode,
    read: () => readUpTo(walk, path, size),
  };
}

async function* readUpTo(walk: Walk, path: string, size: number): AsyncGenerator<Uint8Array> {
  const fd = tryOpen(walk, path, FILE_FLAGS);
  if (fd === null || !fstatSync(fd).isFile()) {
    if (fd !== null) closeSync(fd);
    throw new CprgError("not_found", `Cannot read artifact ${JSON.stringify(path)}: it is gone`);
  }
  try {
    for (let left = size; left > 0; ) {
      const bytes = new Uint8Array(Math.min(CHUNK_BYTES, left));
      const count = readSync(fd, bytes);
      if (count === 0) return;
      left -= count;
      yield bytes.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
}

function tooMany(path: string): CprgError {
  return new CprgError(
    "resource_exhausted",
    `Cannot collect artifacts: too many or too deep at ${JSON.stringify(path.slice(0, 256))}`,
    { reason: "ARTIFACTS", hint: `At most ${ARTIFACTS_MAX} files, ${DEPTH_MAX} levels deep` },
  );
}
