/** Host files and trees into a sandbox: exact bytes, modes, and links as they are. */

import { createReadStream, lstatSync, readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { EntryPart } from "../provider/contract.ts";
import { encodeArchive } from "./archive.ts";
import { BOUNDS } from "./layout.ts";
import { type Transfer, type TransferHost, unpack } from "./transfer.ts";

/**
 * Copies a host file, link or tree to the transfer's path.
 *
 * @throws CprgError `not_found` when there is no such source, `invalid_argument` for what is
 *   neither file, directory nor link
 */
export async function uploadTree(
  host: TransferHost,
  transfer: Transfer,
  source: string,
): Promise<void> {
  const status = statOf(source);
  if (transfer.isMerge === true && !status.isDirectory()) {
    throw new CprgError("invalid_argument", `Cannot put a file on the directory ${transfer.path}`);
  }
  await putEntries(host, transfer, treeEntries(source));
}

/**
 * Puts entries at the transfer's path.
 *
 * @throws what the entries threw; otherwise as {@link unpack}
 */
export async function putEntries(
  host: TransferHost,
  transfer: Transfer,
  entries: AsyncIterable<EntryPart>,
): Promise<void> {
  const reading: Reading = { failure: null };
  try {
    await unpack(host, transfer, noting(encodeArchive(entries), reading));
  } catch (error) {
    // A source that cannot be read cuts the stream: the cut is what the sandbox reports.
    throw reading.failure === null ? error : reading.failure.error;
  }
}

interface Reading {
  failure: { readonly error: unknown } | null;
}

/** Hands a stream on and notes what made it fail. */
async function* noting(
  stream: AsyncIterable<Uint8Array>,
  reading: Reading,
): AsyncGenerator<Uint8Array> {
  try {
    // Only the source's failures come by: a reader that gives up returns, and throws nothing in.
    yield* stream;
  } catch (error) {
    reading.failure = { error };
    throw error;
  }
}

/**
 * The entries of a host file, link or tree.
 *
 * @param path of the entry in the stream; empty for the whole
 * @throws CprgError `not_found`, `invalid_argument` for what is neither file, directory nor link
 */
export async function* treeEntries(source: string, path = ""): AsyncGenerator<EntryPart> {
  const status = statOf(source);
  const mode = status.mode & 0o777;
  if (path.split("/").length > BOUNDS.depth) throw tooDeep(source);
  if (status.isDirectory()) {
    yield { type: "directory", mode, path, size: 0 };
    for (const name of readdirSync(source).sort()) {
      yield* treeEntries(join(source, name), path === "" ? name : `${path}/${name}`);
    }
  } else if (status.isSymbolicLink()) {
    const target = Buffer.from(readlinkSync(source));
    yield { type: "link", mode: 0o777, path, size: target.length };
    yield target;
  } else if (status.isFile()) {
    yield { type: "file", mode, path, size: status.size };
    yield* exactly(source, status.size);
  } else {
    throw new CprgError("invalid_argument", `Cannot upload ${source}: not a file, tree or link`);
  }
}

/** As many bytes as were announced: a file that changes meanwhile must not break the stream. */
async function* exactly(source: string, size: number): AsyncGenerator<Uint8Array> {
  if (size === 0) return;
  let left = size;
  for await (const chunk of createReadStream(source, { end: size - 1 })) {
    const bytes = chunk as Uint8Array;
    left -= bytes.length;
    yield bytes;
  }
  if (left > 0) {
    throw new CprgError("aborted", `Cannot upload ${source}: it became shorter meanwhile`);
  }
}

function statOf(source: string) {
  const status = lstatSync(source, { throwIfNoEntry: false });
  if (status !== undefined) return status;
  throw new CprgError("not_found", `Cannot upload ${source}: no such file`);
}

function tooDeep(source: string): CprgError {
  return new CprgError(
    "invalid_argument",
    `Cannot upload ${source}: deeper than ${BOUNDS.depth} levels`,
  );
}
