/** `fs.Download`: entries of a place as a head and chunks; a directory's are a tar. */

import { ITEM_BYTES_MAX, ITEM_COST_BYTES } from "../bridge/limits.ts";
import { CprgError } from "../core/errors.ts";
import type { FsDownloadItem, TransferHead } from "../gen/messages.ts";
import type { EntryHead, EntryPart } from "../provider/contract.ts";
import { writeTar } from "../sandbox/tar-writer.ts";

/** Bytes of one chunk (PROTOCOL.md section 9, "Files"). */
export const CHUNK_BYTES_MAX = ITEM_BYTES_MAX - ITEM_COST_BYTES;

/** The items of a download. @throws what the entries throw, or the signal's reason */
export async function* downloadItems(
  entries: AsyncGenerator<EntryPart, void, void>,
  signal: AbortSignal,
): AsyncGenerator<Partial<FsDownloadItem>, void, void> {
  try {
    const first = await entries.next();
    if (first.done || first.value instanceof Uint8Array) throw new Error("BUG(cprg): no entry");
    const head = first.value;
    if (head.type === "link") {
      yield { head: { ...headOf(head), linkTarget: await targetOf(entries) } };
      return;
    }
    yield { head: headOf(head) };
    const bytes =
      head.type === "file"
        ? contentOf(entries)
        : writeTar(beneath(head, entries), { name: "", mtimeSeconds: 0, isBare: true });
    for await (const chunk of chunksOf(bytes)) {
      if (signal.aborted) throw signal.reason;
      yield { chunk };
    }
  } finally {
    await entries.return();
  }
}

/** As many bytes at once as a chunk may have: a tar is made of many small pieces. */
export async function* chunksOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let length = 0;
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; ) {
      const part = piece.subarray(at, at + CHUNK_BYTES_MAX - length);
      parts.push(part);
      length += part.length;
      at += part.length;
      if (length < CHUNK_BYTES_MAX) continue;
      yield Buffer.concat(parts, length);
      parts = [];
      length = 0;
    }
  }
  if (length > 0) yield Buffer.concat(parts, length);
}

function headOf({ type, mode, size }: EntryHead): TransferHead {
  return { type, mode, size: type === "file" ? size : 0, linkTarget: "" };
}

async function targetOf(entries: AsyncIterator<EntryPart, void>): Promise<string> {
  const { value } = await entries.next();
  return value instanceof Uint8Array ? Buffer.from(value).toString("utf8") : "";
}

async function* contentOf(entries: AsyncIterable<EntryPart>): AsyncGenerator<Uint8Array> {
  for await (const part of entries) {
    if (!(part instanceof Uint8Array)) throw new CprgError("internal", "a file has one entry");
    yield part;
  }
}

/** With the root in front again. */
async function* beneath(
  root: EntryHead,
  entries: AsyncIterable<EntryPart>,
): AsyncGenerator<EntryPart> {
  yield root;
  yield* entries;
}
