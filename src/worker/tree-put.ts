/**
 * Entries made into a tree through descriptors. Without merge everything is made beside its place
 * under a private name and renamed at the end; with merge each file and link is. What fails, or is
 * given up, leaves no half-made thing.
 */

import {
  closeSync,
  constants,
  fchmodSync,
  lstatSync,
  mkdirSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { EntryHead, EntryPart } from "../provider/contract.ts";
import type { Native } from "../sandbox/native.ts";
import { TurnShare } from "../sandbox/turn.ts";
import { type Named, named } from "./confined-roots.ts";
import { errnoOf } from "./file-error.ts";
import type { PutCounts } from "./place.ts";
import { removeTree } from "./tree-remove.ts";

const O_PATH = 0o10000000;
const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;
const DIRECTORY = O_PATH | O_DIRECTORY | O_NOFOLLOW;
const CREATE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
const PRIVATE_FILE = 0o600;
const PRIVATE_DIRECTORY = 0o700;

/** A name beside a place that nobody else uses. */
export function stageName(): string {
  return `.cprg-stage-${crypto.randomUUID()}`;
}

/**
 * Makes what the entries say at a name, in the place of what is there.
 *
 * @throws what the entries throw, what the kernel says; then nothing is left of it
 */
export async function putTree(
  native: Native,
  target: Named,
  entries: AsyncIterable<EntryPart>,
): Promise<PutCounts> {
  const stage = stageName();
  const writer = new TreeWriter(native, { baseFd: target.dirFd, rootName: stage });
  try {
    const counts = await writer.take(entries);
    await replace(native, target, stage);
    return counts;
  } finally {
    writer.close();
    await removeTree(native, named(target.dirFd, stage));
  }
}

/**
 * Makes what the entries say in a directory that is there, entry by entry. Beneath it no link is
 * followed; directories that are there keep their modes.
 */
export async function mergeTree(
  native: Native,
  dirFd: number,
  entries: AsyncIterable<EntryPart>,
): Promise<PutCounts> {
  const writer = new TreeWriter(native, { baseFd: dirFd, rootName: null });
  try {
    return await writer.take(entries);
  } finally {
    await writer.abandon();
  }
}

/** A directory can be renamed over an empty one only, and nothing over one: it steps aside. */
async function replace(native: Native, target: Named, stage: string): Promise<void> {
  const { dirFd, path } = target;
  const staged = named(dirFd, stage).path;
  try {
    renameSync(staged, path);
    return;
  } catch (error) {
    if (!["ENOTEMPTY", "EEXIST", "EISDIR", "ENOTDIR"].includes(errnoOf(error))) throw error;
  }
  const old = named(dirFd, stageName());
  renameSync(path, old.path);
  try {
    renameSync(staged, path);
  } catch (error) {
    renameSync(old.path, path);
    throw error;
  }
  await removeTree(native, old);
}

/** Where entries go: a new tree of its own name, or a directory that is there. */
interface WriterPlace {
  readonly baseFd: number;
  /** Null: the entries' root is `baseFd` itself. */
  readonly rootName: string | null;
}

interface OpenFile {
  readonly fd: number;
  readonly head: EntryHead;
  left: number;
  /** Merged: made under the first name, renamed to the second. */
  readonly stage: Named | null;
  readonly target: Named;
}

class TreeWriter {
  readonly #native: Native;
  readonly #place: WriterPlace;
  readonly #share = new TurnShare();
  /** Directories that were made, with the modes that they get at the end. */
  readonly #modes: (readonly [string, number])[] = [];
  #parent: { readonly path: string; readonly fd: number } | null = null;
  #file: OpenFile | null = null;
  #link: { readonly head: EntryHead; readonly parts: Uint8Array[]; left: number } | null = null;
  #bytes = 0;
  #entries = 0;
  #hasBegun = false;

  constructor(native: Native, place: WriterPlace) {
    this.#native = native;
    this.#place = place;
  }

  async take(entries: AsyncIterable<EntryPart>): Promise<PutCounts> {
    for await (const part of entries) {
      try {
        if (part instanceof Uint8Array) await this.#content(part);
        else await this.#entry(part);
      } catch (error) {
        throw this.#place.rootName === null ? error : ofStage(error);
      }
    }
    if (this.#file !== null || this.#link !== null) throw cutShort();
    if (!this.#hasBegun) throw cutShort();
    await this.#setModes();
    return { bytes: this.#bytes, entries: this.#entries };
  }

  /** Closes what is open. */
  close(): void {
    if (this.#file !== null) closeSync(this.#file.fd);
    this.#file = null;
    if (this.#parent !== null) closeSync(this.#parent.fd);
    this.#parent = null;
  }

  /** Closes what is open, and removes what is staged. */
  async abandon(): Promise<void> {
    const stage = this.#file?.stage ?? null;
    // Through the parent's descriptor, so before that is closed.
    if (stage !== null) await removeTree(this.#native, stage);
    this.close();
  }

  async #entry(head: EntryHead): Promise<void> {
    if (this.#file !== null || this.#link !== null) throw cutShort();
    await this.#share.spend();
    this.#hasBegun = true;
    if (head.path !== "" || head.type !== "directory") this.#entries += 1;
    if (head.type === "directory") {
      this.#makeDirectory(head);
    } else if (head.type === "link") {
      this.#link = { head, parts: [], left: head.size };
    } else {
      this.#open(head);
      if (head.size === 0) this.#closeFile();
    }
  }

  async #content(bytes: Uint8Array): Promise<void> {
    await this.#share.spend();
    if (this.#file !== null) {
      this.#file.left -= bytes.length;
      if (this.#file.left < 0) throw cutShort();
      for (let at = 0; at < bytes.length; ) at += writeSync(this.#file.fd, bytes, at);
      this.#bytes += bytes.length;
      if (this.#file.left === 0) this.#closeFile();
    } else if (this.#link !== null) {
      this.#link.parts.push(bytes);
      this.#link.left -= bytes.length;
      if (this.#link.left <= 0) this.#makeLink();
    }
  }

  #makeDirectory({ path, mode }: EntryHead): void {
    if (path === "" && this.#place.rootName === null) return;
    const target = this.#named(path);
    try {
      mkdirSync(target.path, PRIVATE_DIRECTORY);
      this.#modes.push([path, mode]);
    } catch (error) {
      const isMerged = this.#place.rootName === null && errnoOf(error) === "EEXIST";
      if (!isMerged || !lstatSync(target.path).isDirectory()) throw error;
    }
  }

  #open(head: EntryHead): void {
    const target = this.#named(head.path);
    const isMerge = this.#place.rootName === null;
    const stage = isMerge ? named(target.dirFd, stageName()) : null;
    const { dirFd, name } = stage ?? target;
    const fd = this.#native.openWithin(dirFd, name, CREATE, PRIVATE_FILE);
    this.#file = { fd, head, left: head.size, stage, target };
  }

  #closeFile(): void {
    const file = this.#file;
    if (file === null) return;
    fchmodSync(file.fd, file.head.mode);
    if (file.stage !== null) renameSync(file.stage.path, file.target.path);
    this.#file = null;
    closeSync(file.fd);
  }

  #makeLink(): void {
    if (this.#link === null) return;
    const { head, parts } = this.#link;
    this.#link = null;
    const target = this.#named(head.path);
    const content = Buffer.concat(parts).toString("utf8");
    if (this.#place.rootName !== null) {
      symlinkSync(content, target.path);
      return;
    }
    const stage = named(target.dirFd, stageName());
    symlinkSync(content, stage.path);
    try {
      renameSync(stage.path, target.path);
    } catch (error) {
      unlinkSync(stage.path);
      throw error;
    }
  }

  /** Innermost first: a directory may be one that nobody can enter. */
  async #setModes(): Promise<void> {
    for (const [path, mode] of this.#modes.reverse()) {
      await this.#share.spend();
      const { dirFd, name } = this.#named(path);
      const fd = this.#native.openBeneath(dirFd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      try {
        fchmodSync(fd, mode);
      } finally {
        closeSync(fd);
      }
    }
  }

  /** Its name in its directory, which stays open until another one is needed. */
  #named(path: string): Named {
    const { baseFd, rootName } = this.#place;
    if (path === "") return named(baseFd, rootName ?? ".");
    const inner = posix.dirname(path) === "." ? "" : posix.dirname(path);
    const parent = posix.join(rootName ?? ".", inner);
    if (this.#parent?.path !== parent) {
      const fd = this.#native.openBeneath(baseFd, parent, DIRECTORY);
      if (this.#parent !== null) closeSync(this.#parent.fd);
      this.#parent = { path: parent, fd };
    }
    return named(this.#parent.fd, posix.basename(path));
  }
}

/** In a new tree nothing is in the way but what the entries themselves made. */
function ofStage(error: unknown): unknown {
  if (!["EEXIST", "ENOTDIR", "ELOOP"].includes(errnoOf(error))) return error;
  return new CprgError("invalid_argument", "Cannot upload: an entry lies beneath what is none", {
    reason: "BAD_ARCHIVE",
    cause: error,
  });
}

function cutShort(): CprgError {
  return new CprgError("invalid_argument", "Cannot upload: its content is not as long as it says", {
    reason: "BAD_ARCHIVE",
  });
}
