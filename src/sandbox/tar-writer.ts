/**
 * Entries of a tree as a tar stream, in constant memory. The entries come out of a sandbox: each has
 * to lie in a directory that came before it. Links are given as they are, and lead anywhere: whoever
 * unpacks a tar must not follow them, as tar(1) does not.
 */

import { CprgError } from "../core/errors.ts";
import type { EntryHead, EntryPart } from "../provider/contract.ts";
import { BLOCK_BYTES, encodeHeader, paddingOf, type TarFields } from "./tar-header.ts";

const TYPES: Readonly<Record<EntryHead["type"], TarFields["type"]>> = {
  file: "0",
  link: "2",
  directory: "5",
};

/** How a stream is written. */
export interface TarWriteOptions {
  /** Name of a single file or link; a tree is `./` and what is beneath it. */
  readonly name: string;
  /** Time of all entries, in seconds since 1970: a sandbox's own are not kept. */
  readonly mtimeSeconds: number;
  /** Names of a tree without `./` in front, and no entry for its root. */
  readonly isBare?: boolean;
}

/**
 * A tar stream of entries.
 *
 * @throws CprgError `data_loss` for an entry that is out of place
 */
export async function* writeTar(
  entries: AsyncIterable<EntryPart>,
  options: TarWriteOptions,
): AsyncGenerator<Uint8Array> {
  const trail = new Trail();
  let open: Open | null = null;
  for await (const part of entries) {
    if (part instanceof Uint8Array) {
      if (open === null) throw new Error("BUG(cprg): content before the first entry");
      yield* contentOf(open, part, options);
      continue;
    }
    trail.enter(part);
    open = { head: part, target: [], left: part.size };
    const isLeftOut = options.isBare === true && part.path === "" && part.type === "directory";
    if (part.type !== "link" && !isLeftOut) yield header(part, "", options);
  }
  yield new Uint8Array(2 * BLOCK_BYTES);
}

/** The entry whose content comes; of a link it is kept, because it belongs into the header. */
interface Open {
  readonly head: EntryHead;
  readonly target: Uint8Array[];
  left: number;
}

function* contentOf(open: Open, part: Uint8Array, options: TarWriteOptions): Generator<Uint8Array> {
  open.left -= part.length;
  if (open.head.type === "link") {
    open.target.push(part);
    if (open.left === 0) yield header(open.head, Buffer.concat(open.target).toString(), options);
    return;
  }
  yield part;
  if (open.left === 0) yield new Uint8Array(paddingOf(open.head.size));
}

function header(head: EntryHead, linkName: string, options: TarWriteOptions): Uint8Array {
  return encodeHeader({
    name: nameOf(head, options),
    mode: head.mode,
    size: head.type === "link" ? 0 : head.size,
    type: TYPES[head.type],
    linkName,
    mtimeSeconds: options.mtimeSeconds,
  });
}

function nameOf({ path, type }: EntryHead, { name, isBare }: TarWriteOptions): string {
  const prefix = isBare === true ? "" : "./";
  if (path === "") return type === "directory" ? "./" : name;
  return type === "directory" ? `${prefix}${path}/` : `${prefix}${path}`;
}

/** The directories above the last entry: a walk goes down into one and never comes back to it. */
class Trail {
  readonly #directories: string[] = [];
  #isFirst = true;

  /** @throws CprgError `data_loss` for an entry beneath none of them */
  enter({ path, type }: EntryHead): void {
    const parent = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
    while (this.#directories.length > 0 && this.#directories.at(-1) !== parent) {
      this.#directories.pop();
    }
    const isRoot = this.#isFirst && path === "";
    this.#isFirst = false;
    if (!isRoot && (path === "" || this.#directories.length === 0)) {
      throw new CprgError(
        "data_loss",
        `The sandbox sent ${JSON.stringify(path.slice(0, 128))} out of place`,
      );
    }
    if (type === "directory") this.#directories.push(path);
  }
}
