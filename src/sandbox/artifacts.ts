/**
 * What a program left in /workspace/out, read from the host through a descriptor of the workspace.
 * The tree is hostile: only regular files count, no link is followed, and every bound is ours.
 */

import { chmodSync, closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { constants as osConstants } from "node:os";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import { TurnShare } from "../core/turn.ts";
import type { Artifact } from "../provider/contract.ts";
import { BytesBound } from "./bytes-bound.ts";
import { type Native, NativeError } from "./native.ts";
import { errnoName } from "./steps.ts";

/** Files that are collected, names that are looked at, and how deep. */
export const ARTIFACTS_MAX = 10_000;
const NAMES_MAX = 50_000;
const DEPTH_MAX = 32;
const OUT = "out";
const CHUNK_BYTES = 128 * 1024;

const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Opening a FIFO or a device must neither wait nor do anything. */
const FILE_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
const O_CLOEXEC = 0o2000000;
const O_PATH = 0o10000000;

const { EACCES, ELOOP, EMFILE, ENFILE, ENOENT, ENOMEM, ENOTDIR, ENXIO } = osConstants.errno;
/** A link, what is gone, a socket: no artifact, and no failure. */
const NOT_PLAIN: readonly number[] = [ELOOP, ENOENT, ENXIO];
const HOST_SHORT: readonly number[] = [EMFILE, ENFILE, ENOMEM];

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Regular files beneath /workspace/out, in the order of their names. All of them or none: what
 * cannot be had is an error, never left out in silence.
 *
 * @throws CprgError `resource_exhausted` beyond a bound or when the host is short of descriptors,
 *   `failed_precondition` for a name that is no UTF-8 and for what cannot be opened
 */
export async function listArtifacts(
  native: Native,
  workspaceFd: number,
): Promise<readonly Artifact[]> {
  const found: Artifact[] = [];
  const bytes = BytesBound.ofDisk(workspaceFd, "collect artifacts");
  const walk = { native, workspaceFd, found, bytes, share: new TurnShare(), names: 0 };
  await visit(walk, OUT, 0);
  return found;
}

interface Walk {
  readonly native: Native;
  readonly workspaceFd: number;
  readonly found: Artifact[];
  readonly bytes: BytesBound;
  readonly share: TurnShare;
  names: number;
}

async function visit(walk: Walk, path: string, depth: number): Promise<void> {
  const fd = tryOpen(walk, path, DIRECTORY_FLAGS);
  if (fd === null) return;
  let names: Buffer[];
  try {
    names = await readdir(`/proc/self/fd/${fd}`, { encoding: "buffer" });
  } finally {
    closeSync(fd);
  }
  walk.names += names.length;
  if (walk.names > NAMES_MAX || depth > DEPTH_MAX) throw tooMany(path);
  for (const name of names.map((bytes) => textOf(bytes, path)).sort()) {
    await walk.share.spend();
    await look(walk, join(path, name), depth);
  }
}

/** The path of an artifact is text, so a name that is none cannot be handed on. */
function textOf(name: Buffer, path: string): string {
  try {
    return decoder.decode(name);
  } catch (cause) {
    const shown = name.toString("latin1").replace(/[^ -~]/g, escapeByte);
    throw cannotTake(join(path, shown), {
      why: "its name is no UTF-8",
      hint: "Give it a name in UTF-8",
      cause,
    });
  }
}

function escapeByte(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
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
    walk.bytes.add(status.size);
    walk.found.push(artifact(walk, path, { size: status.size, mode: status.mode & 0o777 }));
  }
}

/**
 * Null for what is no plain file or directory: links, sockets, what is gone.
 *
 * @throws CprgError for every other failure
 */
function tryOpen(
  { native, workspaceFd }: Pick<Walk, "native" | "workspaceFd">,
  path: string,
  flags: number,
): number | null {
  try {
    return native.openBeneath(workspaceFd, path, flags | O_CLOEXEC);
  } catch (error) {
    if (!(error instanceof NativeError)) throw error;
    const isNoDirectory = error.errno === ENOTDIR && (flags & constants.O_DIRECTORY) !== 0;
    if (NOT_PLAIN.includes(error.errno) || isNoDirectory) return null;
    const own = error.errno === EACCES ? openOwn(native, workspaceFd, { path, flags }) : null;
    if (own !== null) return own;
    const isShort = HOST_SHORT.includes(error.errno);
    throw cannotTake(path, {
      code: isShort ? "resource_exhausted" : "failed_precondition",
      why: errnoName(error.errno),
      hint: isShort
        ? "The server is short of descriptors or memory: raise ulimit -n, or try again"
        : "Make its path shorter, or take it out of /workspace/out",
      cause: error,
    });
  }
}

/**
 * What a program of a user's sandbox has closed to its owner is closed to the server, who is that
 * owner: it is opened again. Null for what is another's, or no plain file or directory.
 */
function openOwn(
  native: Native,
  workspaceFd: number,
  { path, flags }: { readonly path: string; readonly flags: number },
): number | null {
  let handle = -1;
  try {
    handle = native.openBeneath(workspaceFd, path, O_PATH | constants.O_NOFOLLOW | O_CLOEXEC);
    const status = fstatSync(handle);
    if (!status.isFile() && !status.isDirectory()) return null;
    const link = `/proc/self/fd/${handle}`;
    chmodSync(link, (status.mode & 0o777) | (status.isDirectory() ? 0o500 : 0o400));
    return openSync(link, (flags & ~constants.O_NOFOLLOW) | O_CLOEXEC);
  } catch {
    // Not ours to open: the first error says why.
    return null;
  } finally {
    if (handle >= 0) closeSync(handle);
  }
}

/** Why a file cannot be taken. */
interface Obstacle {
  readonly code?: "resource_exhausted" | "failed_precondition";
  readonly why: string;
  readonly hint: string;
  readonly cause: unknown;
}

function cannotTake(path: string, { code, why, hint, cause }: Obstacle): CprgError {
  return new CprgError(
    code ?? "failed_precondition",
    `Cannot take artifact ${JSON.stringify(path.slice(0, 256))}: ${why}`,
    { reason: "ARTIFACTS", hint, retryable: code === "resource_exhausted", cause },
  );
}

function artifact(
  walk: Pick<Walk, "native" | "workspaceFd">,
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

async function* readUpTo(
  walk: Pick<Walk, "native" | "workspaceFd">,
  path: string,
  size: number,
): AsyncGenerator<Uint8Array> {
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
