/**
 * A tar stream of a client as entries of a tree, in constant memory. The client is hostile: names
 * that lead out, devices, links to elsewhere, sparse files and headers without bound are refused.
 */

import type { EntryHead, EntryPart } from "../provider/contract.ts";
import { leadsOut } from "./download.ts";
import { BOUNDS } from "./layout.ts";
import {
  BLOCK_BYTES,
  badTar,
  decodeHeader,
  paddingOf,
  type TarHeader,
  tarText,
} from "./tar-header.ts";

/** Bytes of one pax record or long name. */
export const TAR_EXTENSION_BYTES_MAX = 64 * 1024;
/** Pax records and long names before one entry. */
export const TAR_EXTENSIONS_MAX = 8;
/** Bytes of the names of all directories, which are remembered to the end. */
export const TAR_DIRECTORIES_BYTES_MAX = 16 * 1024 * 1024;
/** Bytes after the end of the stream: tar(1) fills its last record of 10 KiB, or of what `-b` says. */
export const TAR_TRAILING_BYTES_MAX = 1024 * 1024;

const IMPLIED_MODE = 0o755;
/** Pax keys that change what an entry is. */
const TELLING_KEYS = ["path", "linkpath", "size"];

/** How a stream is read. */
export interface TarOptions {
  /** Takes links whatever they lead to. */
  readonly areLinksFree?: boolean;
  /** Names may come again, and directories after what is in them: the later entry holds. */
  readonly isAnyOrder?: boolean;
  /** Takes one without entries, for an empty directory. */
  readonly mayBeEmpty?: boolean;
  /** For tests; default {@link TAR_DIRECTORIES_BYTES_MAX}. */
  readonly directoriesBytesMax?: number;
}

/**
 * The entries of a tar stream: each directory before what is in it.
 *
 * @throws CprgError `invalid_argument` with reason TAR, naming what is wrong
 */
export async function* readTar(
  chunks: AsyncIterable<Uint8Array>,
  options: TarOptions = {},
): AsyncGenerator<EntryPart> {
  const { areLinksFree = false, isAnyOrder = false, mayBeEmpty = false } = options;
  const bytes = new TarBytes(chunks);
  const places = new Places(options.directoriesBytesMax ?? TAR_DIRECTORIES_BYTES_MAX, isAnyOrder);
  let isEmpty = true;
  for (;;) {
    const header = await nextHeader(bytes);
    if (header === null) break;
    isEmpty = false;
    const head = entryOf(header);
    yield* places.missingParents(head.path);
    if (head.type === "link") {
      checkLink(head.path, header.linkName, areLinksFree);
      places.add(head);
      yield head;
      yield Buffer.from(header.linkName);
    } else if (places.add(head)) {
      yield head;
    }
    yield* bytes.content(header.size);
    await bytes.skip(paddingOf(header.size));
  }
  await checkEnd(bytes);
  await bytes.drain();
  if (isEmpty && !mayBeEmpty) throw badTar("it holds nothing");
}

/** The end is two blocks of zeros (ustar), of which one has been read: a stream that was cut has none. */
async function checkEnd(bytes: TarBytes): Promise<void> {
  if (decodeHeader(await bytes.exactly(BLOCK_BYTES)) !== null) throw badTar("it has no end");
}

/** The header of the next entry, with what pax records and long names before it say. */
async function nextHeader(bytes: TarBytes): Promise<TarHeader | null> {
  const said = new Map<string, string>();
  for (let count = 0; ; count += 1) {
    const header = decodeHeader(await bytes.exactly(BLOCK_BYTES));
    if (header === null) {
      if (count > 0) throw badTar("it ends after a header that names the next entry");
      return null;
    }
    if (!["x", "g", "L", "K"].includes(header.type)) return withSaid(header, said);
    if (count >= TAR_EXTENSIONS_MAX) throw badTar("too many extended headers in a row");
    if (header.size > TAR_EXTENSION_BYTES_MAX) {
      throw badTar(
        `an extended header of ${header.size} bytes, at most ${TAR_EXTENSION_BYTES_MAX}`,
      );
    }
    const content = await bytes.exactly(header.size);
    await bytes.skip(paddingOf(header.size));
    note(said, header.type, content);
  }
}

function note(said: Map<string, string>, type: string, content: Uint8Array): void {
  if (type === "L" || type === "K") {
    const end = content.indexOf(0);
    const name = tarText(end === -1 ? content : content.subarray(0, end));
    said.set(type === "L" ? "path" : "linkpath", name);
    return;
  }
  for (const [key, value] of paxRecords(content)) {
    if (key.startsWith("GNU.sparse.")) throw sparse();
    if (!TELLING_KEYS.includes(key)) continue;
    // What holds for all entries at once can mean no single one.
    if (type === "g") throw badTar(`a global header that sets ${key}`);
    said.set(key, value);
  }
}

function* paxRecords(content: Uint8Array): Generator<readonly [string, string]> {
  for (let at = 0; at < content.length; ) {
    const found = /^(\d{1,7}) /.exec(Buffer.from(content.subarray(at, at + 8)).toString("latin1"));
    const length = Number(found?.[1] ?? 0);
    const record = content.subarray(at + (found?.[0].length ?? 0), at + length);
    const equals = record.indexOf(0x3d);
    if (found === null || at + length > content.length || equals < 1 || record.at(-1) !== 0x0a) {
      throw badTar("a malformed pax record");
    }
    const key = tarText(record.subarray(0, equals));
    // Values of other keys may be binary.
    const value = TELLING_KEYS.includes(key) ? tarText(record.subarray(equals + 1, -1)) : "";
    yield [key, value];
    at += length;
  }
}

function withSaid(header: TarHeader, said: ReadonlyMap<string, string>): TarHeader {
  const size = said.get("size");
  if (size !== undefined && !/^\d{1,15}$/.test(size)) throw badTar("a size that is no number");
  return {
    ...header,
    name: said.get("path") ?? header.name,
    linkName: said.get("linkpath") ?? header.linkName,
    size: size === undefined ? header.size : Number(size),
  };
}

function entryOf(header: TarHeader): EntryHead {
  const { name, mode, size, type } = header;
  const path = plainPath(name);
  const isOldDirectory = type === "0" && name.endsWith("/");
  if (type === "5" || isOldDirectory) {
    if (size !== 0) throw badTar(`the directory ${shown(name)} has content`);
    return { type: "directory", mode, path, size: 0 };
  }
  if (path === "") throw badTar(`${shown(name)} names no file`);
  if (type === "2") {
    if (size !== 0) throw badTar(`the link ${shown(name)} has content`);
    return { type: "link", mode: 0o777, path, size: Buffer.byteLength(header.linkName) };
  }
  // 7 is a file that was contiguous where it came from.
  if (type === "0" || type === "7") return { type: "file", mode, path, size };
  throw refused(name, type);
}

function refused(name: string, type: string): Error {
  switch (type) {
    case "1":
      return badTar(`${shown(name)} is a hard link`, "Pack with tar --hard-dereference");
    case "3":
    case "4":
      return badTar(`${shown(name)} is a device`);
    case "6":
      return badTar(`${shown(name)} is a fifo`);
    case "S":
      return sparse();
    default:
      return badTar(`${shown(name)} is of the unknown type ${JSON.stringify(type)}`);
  }
}

function sparse(): Error {
  return badTar("it has a sparse file", "Pack without tar --sparse");
}

/** A path without `.`, empty and last slash parts. @throws CprgError for one that leads out */
function plainPath(name: string): string {
  if (name.startsWith("/")) throw badTar(`the path ${shown(name)} is absolute`);
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) throw badTar(`the path ${shown(name)} leads out`);
  if (name.includes("\0")) throw badTar(`the path ${shown(name)} has a NUL byte`);
  if (parts.length > BOUNDS.depth) {
    throw badTar(`the path ${shown(name)} is deeper than ${BOUNDS.depth} levels`);
  }
  return parts.join("/");
}

function checkLink(path: string, target: string, isFree: boolean): void {
  if (target === "" || target.includes("\0")) throw badTar(`the link ${shown(path)} leads nowhere`);
  if (isFree || !leadsOut(path, target)) return;
  throw badTar(
    `the link ${shown(path)} to ${shown(target)} leads out of the tree`,
    "Send links=any to take links as they are",
  );
}

function shown(text: string): string {
  return JSON.stringify(text.length > 128 ? `${text.slice(0, 128)}…` : text);
}

/** Directories that this stream has made. */
class Places {
  readonly #bytesMax: number;
  readonly #isAnyOrder: boolean;
  readonly #modes = new Map<string, number>();
  #bytes = 0;

  constructor(bytesMax: number, isAnyOrder: boolean) {
    this.#bytesMax = bytesMax;
    this.#isAnyOrder = isAnyOrder;
  }

  /** Directories above a path that no entry has named. */
  *missingParents(path: string): Generator<EntryHead> {
    const parts = path.split("/");
    for (let depth = 1; depth < parts.length; depth += 1) {
      const parent = parts.slice(0, depth).join("/");
      if (this.#modes.has(parent)) continue;
      this.#note(parent, IMPLIED_MODE);
      yield { type: "directory", mode: IMPLIED_MODE, path: parent, size: 0 };
    }
    if (path !== "" && !this.#modes.has("")) this.#note("", IMPLIED_MODE);
  }

  /** Notes an entry; false for a directory that is there already, as the stream says it again. */
  add({ type, path, mode }: EntryHead): boolean {
    const known = this.#modes.get(path);
    if (known !== undefined && type === "directory" && known === mode) return false;
    if (known !== undefined && type === "directory" && this.#isAnyOrder) {
      this.#modes.set(path, mode);
      return true;
    }
    if (known !== undefined) {
      throw badTar(
        `${shown(path)} comes after what is in it`,
        "Pack directories before what is in them, as tar(1) does",
      );
    }
    if (type === "directory") this.#note(path, mode);
    return true;
  }

  #note(path: string, mode: number): void {
    this.#modes.set(path, mode);
    this.#bytes += path.length + 64;
    if (this.#bytes <= this.#bytesMax) return;
    throw badTar("it has too many directories", "Send it in parts");
  }
}

/** Bytes out of chunks of any size. */
class TarBytes {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #current: Uint8Array = new Uint8Array(0);

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  async exactly(length: number): Promise<Uint8Array> {
    const first = await this.#some(length);
    if (first.length === length) return first;
    const bytes = new Uint8Array(length);
    bytes.set(first);
    for (let at = first.length; at < length; ) {
      const piece = await this.#some(length - at);
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }

  /** So many bytes in pieces. */
  async *content(length: number): AsyncGenerator<Uint8Array> {
    for (let left = length; left > 0; ) {
      const piece = await this.#some(left);
      left -= piece.length;
      yield piece;
    }
  }

  async skip(length: number): Promise<void> {
    for (let left = length; left > 0; ) left -= (await this.#some(left)).length;
  }

  /** Reads what fills the last record. */
  async drain(): Promise<void> {
    for (let bytes = this.#current.length; bytes <= TAR_TRAILING_BYTES_MAX; ) {
      const { done, value } = await this.#chunks.next();
      if (done) return;
      bytes += value.length;
    }
    throw badTar(`it goes on after its end for more than ${TAR_TRAILING_BYTES_MAX} bytes`);
  }

  /** One to `most` bytes; none when none are asked for. */
  async #some(most: number): Promise<Uint8Array> {
    while (this.#current.length === 0 && most > 0) {
      const { done, value } = await this.#chunks.next();
      if (done) throw badTar("it was cut");
      this.#current = value;
    }
    const piece = this.#current.subarray(0, most);
    this.#current = this.#current.subarray(piece.length);
    return piece;
  }
}
