/** `fs.Upload`: a head and chunks as entries of a place; a directory's chunks are a tar. */

import type { CallContext } from "../bridge/contract.ts";
import { CprgError, invalid } from "../core/errors.ts";
import type {
  FsUploadHead,
  FsUploadItem,
  FsUploadResponse,
  TransferHead,
} from "../gen/messages.ts";
import type { EntryPart } from "../provider/contract.ts";
import { readTar, type TarOptions } from "../sandbox/tar-reader.ts";
import type { ClaimHolder } from "./claim-holder.ts";
import type { PutTreeOptions } from "./place.ts";

const MODES = 0o777;
/** As PROTOCOL.md section 9 has the archive of a directory. */
const OF_TRANSFER: TarOptions = { areLinksFree: true, isAnyOrder: true, mayBeEmpty: true };
const LINK_BYTES_MAX = 4095;

/** Takes an upload to its end. @throws CprgError; then nothing half-made is left */
export async function takeUpload(
  items: AsyncIterable<FsUploadItem>,
  { holder, context }: { readonly holder: ClaimHolder; readonly context: CallContext },
): Promise<FsUploadResponse> {
  const iterator = items[Symbol.asyncIterator]();
  const first = await iterator.next();
  const head = first.done === true ? undefined : first.value.head;
  if (first.done === true || head === undefined)
    throw invalid("head", "the first item has no head");
  const { calls, place } = holder.use(first.value.claim);
  using _call = calls.begin(context);
  const { path, merge, parents, transfer } = head;
  const checked = checkedHead(head, transfer);
  const { signal } = context;
  const entries = entriesOf(checked, chunksOf(iterator));
  try {
    const options = { type: checked.type, merge, parents, signal };
    return { ...(await place.files.put(path, entries, options)) };
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw badArchive(error);
  }
}

/** Errors of the tar are the caller's. */
function badArchive(error: unknown): unknown {
  if (!CprgError.is(error) || error.reason !== "TAR") return error;
  return new CprgError("invalid_argument", error.message, { reason: "BAD_ARCHIVE", cause: error });
}

interface CheckedHead extends Omit<TransferHead, "type"> {
  readonly type: PutTreeOptions["type"];
}

const TYPES: readonly PutTreeOptions["type"][] = ["file", "directory", "link"];

function checkedHead(head: FsUploadHead, transfer: TransferHead | null): CheckedHead {
  const type = TYPES.find((known) => known === transfer?.type);
  if (transfer === null || type === undefined) {
    throw invalid("head.transfer.type", "type is none of file, directory, link");
  }
  if (head.merge && type !== "directory") {
    throw invalid("head.merge", "only a directory can be merged");
  }
  const target = Buffer.byteLength(transfer.linkTarget);
  const isTarget = target > 0 && target <= LINK_BYTES_MAX && !transfer.linkTarget.includes("\0");
  if (type === "link" && !isTarget) {
    throw invalid("head.transfer.link_target", `a link leads to 1 to ${LINK_BYTES_MAX} bytes`);
  }
  return { ...transfer, type };
}

/** Their end comes also when the call is given up: `items` throws then. */
async function* chunksOf(items: AsyncIterator<FsUploadItem>): AsyncGenerator<Uint8Array> {
  for (let next = await items.next(); !next.done; next = await items.next()) {
    const { chunk } = next.value;
    if (chunk === undefined || chunk.length === 0) throw invalid("chunk", "an item has no chunk");
    yield chunk;
  }
}

async function* entriesOf(
  { type, mode, size, linkTarget }: CheckedHead,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<EntryPart> {
  const bits = (mode ?? (type === "directory" ? 0o755 : 0o644)) & MODES;
  if (type === "directory") {
    yield* treeOf(bits, readTar(chunks, OF_TRANSFER));
    return;
  }
  if (type === "file") {
    yield { type: "file", mode: bits, path: "", size };
    yield* exactly(size, chunks);
    return;
  }
  const target = Buffer.from(linkTarget);
  yield { type: "link", mode: 0o777, path: "", size: target.length };
  yield target;
  yield* exactly(0, chunks);
}

/** The root of the tree has the mode of the head, whatever the tar says of it. */
async function* treeOf(mode: number, entries: AsyncIterable<EntryPart>): AsyncGenerator<EntryPart> {
  yield { type: "directory", mode, path: "", size: 0 };
  for await (const part of entries) {
    if (part instanceof Uint8Array || part.path !== "") yield part;
  }
}

async function* exactly(
  size: number,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  let left = size;
  for await (const chunk of chunks) {
    left -= chunk.length;
    if (left < 0) break;
    yield chunk;
  }
  if (left === 0) return;
  throw new CprgError("invalid_argument", `the chunks are not the ${size} bytes of the head`, {
    reason: "BAD_ARCHIVE",
  });
}
