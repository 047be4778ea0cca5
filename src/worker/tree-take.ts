/** What is at a path as entries, read through descriptors: a walk that a program cannot lead out. */

import { closeSync, constants, fstatSync, lstatSync, read, readlinkSync } from "node:fs";
import { promisify } from "node:util";
import { CprgError } from "../core/errors.ts";
import type { EntryPart } from "../provider/contract.ts";
import { BOUNDS } from "../sandbox/layout.ts";
import type { Native } from "../sandbox/native.ts";
import { shownNames } from "./list-page.ts";

const { O_DIRECTORY, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
const CHUNK_BYTES = 128 * 1024;
const MODES = 0o777;

const readAsync = promisify(read);

/** Where an entry is, and what it is called in the stream. */
interface Place {
  readonly dirFd: number;
  readonly name: string;
  /** Empty for the whole. */
  readonly path: string;
}

/**
 * The entries of a file, link or tree. What is neither is left out of a tree.
 *
 * @throws CprgError `failed_precondition` for what is neither, `aborted` for a file that shrinks;
 *   what the kernel says
 */
export async function* takeTree(
  native: Native,
  { dirFd, name }: { readonly dirFd: number; readonly name: string },
): AsyncGenerator<EntryPart, void, void> {
  let isEmpty = true;
  for await (const part of entriesOf(native, { dirFd, name, path: "" })) {
    isEmpty = false;
    yield part;
  }
  if (isEmpty) {
    throw new CprgError("failed_precondition", "Cannot download: neither file, directory nor link");
  }
}

/** The entries of a directory that is open. */
export async function* takeDirectory(
  native: Native,
  fd: number,
  path = "",
): AsyncGenerator<EntryPart, void, void> {
  if (path.split("/").length > BOUNDS.depth) {
    throw new CprgError("resource_exhausted", `Cannot download: above ${BOUNDS.depth} levels`);
  }
  yield { type: "directory", mode: fstatSync(fd).mode & MODES, path, size: 0 };
  for (const name of shownNames(`/proc/self/fd/${fd}`)) {
    const inner = path === "" ? name : `${path}/${name}`;
    yield* entriesOf(native, { dirFd: fd, name, path: inner });
  }
}

async function* entriesOf(
  native: Native,
  { dirFd, name, path }: Place,
): AsyncGenerator<EntryPart, void, void> {
  const at = `/proc/self/fd/${dirFd}/${name}`;
  const status = lstatSync(at, { throwIfNoEntry: path === "" });
  // Removed since it was listed.
  if (status === undefined) return;
  if (status.isSymbolicLink()) {
    const target = Buffer.from(readlinkSync(at));
    yield { type: "link", mode: 0o777, path, size: target.length };
    yield target;
    return;
  }
  if (!status.isDirectory() && !status.isFile()) return;
  const fd = native.openBeneath(dirFd, name, status.isDirectory() ? O_DIRECTORY | FILE : FILE);
  try {
    if (status.isDirectory()) yield* takeDirectory(native, fd, path);
    else yield* fileOf(fd, path);
  } finally {
    closeSync(fd);
  }
}

/** As many bytes as were announced: a file that changes meanwhile must not break the stream. */
async function* fileOf(fd: number, path: string): AsyncGenerator<EntryPart, void, void> {
  const status = fstatSync(fd);
  if (!status.isFile()) throw changed(path);
  yield { type: "file", mode: status.mode & MODES, path, size: status.size };
  for (let at = 0; at < status.size; ) {
    const length = Math.min(CHUNK_BYTES, status.size - at);
    const chunk = new Uint8Array(length);
    const { bytesRead } = await readAsync(fd, chunk, 0, length, at);
    if (bytesRead === 0) throw changed(path);
    yield chunk.subarray(0, bytesRead);
    at += bytesRead;
  }
}

function changed(path: string): CprgError {
  return new CprgError("aborted", `Cannot download: ${JSON.stringify(path)} changed meanwhile`);
}
