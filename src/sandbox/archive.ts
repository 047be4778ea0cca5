/** The archive stream of ffi/cprg.h: encoding what goes in, decoding what comes out. */

import { assert, CprgError } from "../core/errors.ts";
import { nextTurn } from "../core/turn.ts";
import type { EntryHead, EntryPart, EntrySink, EntryType } from "../provider/contract.ts";
import { BOUNDS, ENTRY, ENTRY_AT, ENTRY_MAGIC, SIZES } from "./layout.ts";

/** Small entries come many to a chunk: the event loop gets its turn in between. */
const ENTRIES_PER_TURN = 128;
const TYPES: readonly EntryType[] = ["file", "directory", "link"];
const encoder = new TextEncoder();
/** `ignoreBOM` keeps a byte order mark, with which a name may begin. */
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Header and path of an entry. */
export function encodeEntry(entry: EntryHead): Uint8Array {
  const path = encoder.encode(entry.path);
  return encodeHead(ENTRY[entry.type], path, entry);
}

/** The last thing in a stream. */
export function encodeEnd(): Uint8Array {
  return encodeHead(ENTRY.end, new Uint8Array(0), { mode: 0, size: 0 });
}

/**
 * The stream of entries.
 *
 * @throws CprgError `invalid_argument` beyond a bound of the stream
 */
export async function* encodeArchive(
  entries: AsyncIterable<EntryPart>,
): AsyncGenerator<Uint8Array> {
  let left = 0;
  let count = 0;
  for await (const part of entries) {
    if (part instanceof Uint8Array) {
      assert(part.length <= left, "an entry has no more content than its head says");
      left -= part.length;
      yield part;
      continue;
    }
    assert(left === 0, "an entry's content is whole before the next one");
    count += 1;
    checkHead(part, count);
    if (count % ENTRIES_PER_TURN === 0) await nextTurn();
    left = part.size;
    yield encodeEntry(part);
  }
  assert(left === 0, "the last entry's content is whole");
  yield encodeEnd();
}

function checkHead({ path, type, size }: EntryHead, count: number): void {
  const shown = JSON.stringify(path.slice(0, 128));
  if (count > BOUNDS.entries) {
    throw tooLarge(`more than ${BOUNDS.entries} files, directories and links`);
  }
  if (Buffer.byteLength(path) >= BOUNDS.pathBytes) {
    throw tooLarge(`the path ${shown}… is longer than ${BOUNDS.pathBytes - 1} bytes`);
  }
  if (path.split("/").length > BOUNDS.depth) {
    throw tooLarge(`the path ${shown}… is deeper than ${BOUNDS.depth} levels`);
  }
  if (type === "link" && size >= BOUNDS.pathBytes) {
    throw tooLarge(`the target of the link ${shown} is longer than ${BOUNDS.pathBytes - 1} bytes`);
  }
}

function tooLarge(what: string): CprgError {
  return new CprgError("invalid_argument", `Cannot put files into the sandbox: ${what}`, {
    reason: "ARCHIVE_BOUNDS",
  });
}

function encodeHead(
  type: number,
  path: Uint8Array,
  { mode, size }: { readonly mode: number; readonly size: number },
): Uint8Array {
  const bytes = new Uint8Array(SIZES.entry + path.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(ENTRY_AT.magic, ENTRY_MAGIC, true);
  view.setUint32(ENTRY_AT.type, type, true);
  view.setUint32(ENTRY_AT.mode, mode & 0o777, true);
  view.setUint32(ENTRY_AT.pathLength, path.length, true);
  view.setBigUint64(ENTRY_AT.size, BigInt(size), true);
  bytes.set(path, SIZES.entry);
  return bytes;
}

/**
 * Decodes a whole stream into a sink. The stream comes out of a sandbox: everything in it is
 * checked, paths above all.
 *
 * @throws CprgError `data_loss` when it is malformed, beyond a bound, or cut
 */
export async function decodeArchive(
  chunks: AsyncIterable<Uint8Array>,
  sink: EntrySink,
): Promise<void> {
  const bytes = new ChunkReader(chunks);
  for (let count = 0; ; count += 1) {
    if (count > BOUNDS.entries) throw damaged(`more than ${BOUNDS.entries} entries`);
    if (count % ENTRIES_PER_TURN === ENTRIES_PER_TURN - 1) await nextTurn();
    const head = await readHead(bytes);
    if (head === null) break;
    await sink.entry(head);
    for (let left = head.size; left > 0; ) {
      const piece = await bytes.some(left);
      await sink.content(piece);
      left -= piece.length;
    }
  }
}

async function readHead(bytes: ChunkReader): Promise<EntryHead | null> {
  const header = await bytes.exactly(SIZES.entry);
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  if (view.getUint32(ENTRY_AT.magic, true) !== ENTRY_MAGIC) throw damaged("no entry where one is");
  const type = view.getUint32(ENTRY_AT.type, true);
  if (type === ENTRY.end) return null;
  const name = TYPES[type - 1];
  const pathLength = view.getUint32(ENTRY_AT.pathLength, true);
  const size = Number(view.getBigUint64(ENTRY_AT.size, true));
  if (name === undefined || pathLength >= BOUNDS.pathBytes) throw damaged("a malformed entry");
  if (name === "link" && size >= BOUNDS.pathBytes) throw damaged("a link that is too long");
  if (name === "directory" && size !== 0) throw damaged("a directory with content");
  const path = decodePath(await bytes.exactly(pathLength));
  return { type: name, mode: view.getUint32(ENTRY_AT.mode, true) & 0o777, path, size };
}

function decodePath(bytes: Uint8Array): string {
  let path: string;
  try {
    path = decoder.decode(bytes);
  } catch (cause) {
    throw damaged("a name that is no UTF-8", cause);
  }
  if (path === "") return path;
  const parts = path.split("/");
  const isPlain = parts.every((part) => part !== "" && part !== "." && part !== "..");
  if (!isPlain || path.includes("\0") || parts.length > BOUNDS.depth) {
    throw damaged(`the path ${JSON.stringify(path.slice(0, 128))}`);
  }
  return path;
}

function damaged(what: string, cause?: unknown): CprgError {
  return new CprgError("data_loss", `Cannot read what the sandbox sent: ${what}`, {
    reason: "ARCHIVE",
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Bytes out of chunks of any size. */
class ChunkReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #current: Uint8Array = new Uint8Array(0);

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** One to `most` bytes, as they come. */
  async some(most: number): Promise<Uint8Array> {
    while (this.#current.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done) throw damaged("it was cut");
      this.#current = value;
    }
    const piece = this.#current.subarray(0, most);
    this.#current = this.#current.subarray(piece.length);
    return piece;
  }

  async exactly(length: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    for (let at = 0; at < length; ) {
      const piece = await this.some(length - at);
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }
}
