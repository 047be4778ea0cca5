/** Files of a claim, as entries and host paths: `fs.Upload` and `fs.Download` seen from the caller. */

import { ITEM_BYTES_MAX, ITEM_COST_BYTES, READ_BYTES_MAX } from "../bridge/limits.ts";
import { FS_DOWNLOAD, FS_REMOVE, FS_UPLOAD, FS_WRITE_FILE } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import type { FsDownloadItem, FsUploadItem, TransferHead } from "../gen/messages.ts";
import type {
  EntryPart,
  EntrySink,
  EntryTransfers,
  FileTransfers,
  PutOptions,
  TransferOptions,
} from "../provider/contract.ts";
import { BytesBound } from "../sandbox/bytes-bound.ts";
import { writeTree } from "../sandbox/download.ts";
import { handOn } from "../sandbox/hand-on.ts";
import { readTar } from "../sandbox/tar-reader.ts";
import { writeTar } from "../sandbox/tar-writer.ts";
import { treeEntries } from "../sandbox/upload.ts";
import type { ClaimLink } from "./claim-link.ts";

const CHUNK_BYTES = ITEM_BYTES_MAX - ITEM_COST_BYTES;
const MODES = 0o777;

/**
 * Transfers to and from one claim. One that is begun in the grace of a lost stream waits; one that
 * runs when the stream is lost fails with `unavailable`, and has left nothing half-made.
 */
export class RemoteFiles implements FileTransfers, EntryTransfers {
  readonly #link: ClaimLink;

  constructor(link: ClaimLink) {
    this.#link = link;
  }

  upload(source: string, destination: string, options: TransferOptions = {}): Promise<void> {
    return this.putEntries(treeEntries(source), destination, options);
  }

  async download(source: string, destination: string, options: TransferOptions = {}) {
    // A worker is no boundary to the host that it fills: what it sends is bounded by the disk alone.
    const bytes = new BytesBound(Number.POSITIVE_INFINITY, `download ${source}`);
    const fill = (sink: EntrySink): Promise<void> => this.takeEntries(source, sink, options);
    await writeTree(destination, { bytes, fill });
  }

  async putEntries(
    entries: AsyncIterable<EntryPart>,
    path: string,
    { isMerge = false, ...options }: PutOptions = {},
  ): Promise<void> {
    const { claim } = this.#link;
    const mux = await this.#link.attached(options.signal);
    const items = uploadItems(entries, { claim, path, merge: isMerge });
    await mux.upload(FS_UPLOAD, items, callOptions(options));
  }

  async takeEntries(path: string, sink: EntrySink, options: TransferOptions = {}): Promise<void> {
    const { claim } = this.#link;
    const mux = await this.#link.attached(options.signal);
    await handOn(entriesOf(mux.stream(FS_DOWNLOAD, { claim, path }, callOptions(options))), sink);
  }

  async remove(path: string, options: TransferOptions = {}): Promise<void> {
    const { claim } = this.#link;
    await this.#link.call(FS_REMOVE, { claim, path, recursive: true }, callOptions(options));
  }

  /** Puts one file. */
  async putFile(path: string, content: Uint8Array, mode = 0o644): Promise<void> {
    const { claim } = this.#link;
    if (content.length <= READ_BYTES_MAX) {
      await this.#link.call(FS_WRITE_FILE, { claim, path, content, mode, parents: true });
      return;
    }
    async function* file(): AsyncGenerator<EntryPart> {
      yield { type: "file", mode, path: "", size: content.length };
      yield content;
    }
    await this.putEntries(file(), path);
  }
}

function callOptions({ signal, deadlineMs }: TransferOptions) {
  return {
    ...(signal === undefined ? {} : { signal }),
    ...(deadlineMs === undefined ? {} : { timeoutMs: deadlineMs }),
  };
}

async function* uploadItems(
  entries: AsyncIterable<EntryPart>,
  head: { readonly claim: FsUploadItem["claim"]; readonly path: string; readonly merge: boolean },
): AsyncGenerator<Partial<FsUploadItem>> {
  const iterator = entries[Symbol.asyncIterator]();
  try {
    const first = await iterator.next();
    if (first.done || first.value instanceof Uint8Array || first.value.path !== "") {
      throw new CprgError("invalid_argument", "Cannot upload: the first entry is not the whole");
    }
    const root = first.value;
    const rest: AsyncIterable<EntryPart> = { [Symbol.asyncIterator]: () => iterator };
    const isLink = root.type === "link";
    const transfer: TransferHead = {
      type: root.type,
      mode: root.mode,
      size: root.type === "file" ? root.size : 0,
      linkTarget: isLink ? Buffer.concat(await contents(rest)).toString("utf8") : "",
    };
    const { claim, path, merge } = head;
    yield { claim, head: { path, transfer, merge, parents: true } };
    if (isLink) return;
    const isTree = root.type === "directory";
    yield* chunks(isTree ? writeTar(again(root, rest), TREE) : onlyContent(rest));
  } finally {
    await iterator.return?.();
  }
}

const TREE = { name: "", mtimeSeconds: 0, isBare: true } as const;

async function* chunks(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Partial<FsUploadItem>> {
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; at += CHUNK_BYTES) {
      yield { chunk: piece.subarray(at, at + CHUNK_BYTES) };
    }
  }
}

async function* again(root: EntryPart, rest: AsyncIterable<EntryPart>): AsyncGenerator<EntryPart> {
  yield root;
  yield* rest;
}

async function* onlyContent(parts: AsyncIterable<EntryPart>): AsyncGenerator<Uint8Array> {
  for await (const part of parts) if (part instanceof Uint8Array) yield part;
}

async function contents(parts: AsyncIterable<EntryPart>): Promise<Uint8Array[]> {
  const all: Uint8Array[] = [];
  for await (const bytes of onlyContent(parts)) all.push(bytes);
  return all;
}

/** What a worker sends, checked as a tar of anyone. */
async function* entriesOf(items: AsyncIterable<FsDownloadItem>): AsyncGenerator<EntryPart> {
  const iterator = items[Symbol.asyncIterator]();
  try {
    const first = await iterator.next();
    const head = first.done === true ? undefined : first.value.head;
    if (head === undefined) throw badDownload("its head is missing");
    const mode = (head.mode ?? (head.type === "directory" ? 0o755 : 0o644)) & MODES;
    const rest = chunkBytes({ [Symbol.asyncIterator]: () => iterator });
    if (head.type === "link") {
      const target = Buffer.from(head.linkTarget);
      yield { type: "link", mode: 0o777, path: "", size: target.length };
      yield target;
    } else if (head.type === "file") {
      yield { type: "file", mode, path: "", size: head.size };
      yield* exactly(head.size, rest);
    } else if (head.type === "directory") {
      yield { type: "directory", mode, path: "", size: 0 };
      for await (const part of readTar(rest, { areLinksFree: true, mayBeEmpty: true })) {
        if (part instanceof Uint8Array || part.path !== "") yield part;
      }
    } else {
      throw badDownload("it is neither file, directory nor link");
    }
  } finally {
    await iterator.return?.();
  }
}

async function* chunkBytes(items: AsyncIterable<FsDownloadItem>): AsyncGenerator<Uint8Array> {
  for await (const { chunk } of items) if (chunk !== undefined) yield chunk;
}

async function* exactly(size: number, pieces: AsyncIterable<Uint8Array>) {
  let left = size;
  for await (const piece of pieces) {
    left -= piece.length;
    if (left < 0) break;
    yield piece;
  }
  if (left !== 0) throw badDownload("its content is not as long as its head says");
}

function badDownload(what: string): CprgError {
  return new CprgError("data_loss", `Cannot download: ${what}`, { reason: "BAD_ARCHIVE" });
}
