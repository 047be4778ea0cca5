/**
 * Entries made into a new tree through descriptors, under a name that nobody else uses. Beneath it no
 * link is followed. The modes of its directories come last, by `setModes`: one may forbid writing.
 */

import {
  closeSync,
  constants,
  fchmodSync,
  lstatSync,
  mkdirSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import { TurnShare } from "../core/turn.ts";
import type { EntryHead, EntryPart } from "../provider/contract.ts";
import type { Native } from "../sandbox/native.ts";
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

/** What the kernel says where an archive has something beneath what is no directory, or takes one back. */
export const ARCHIVE_ERRNOS: readonly string[] = [
  "EEXIST",
  "ENOTDIR",
  "ELOOP",
  "EISDIR",
  "ENOTEMPTY",
];

interface OpenFile {
  readonly fd: number;
  readonly head: EntryHead;
  left: number;
}

/** Writes one tree. */
export class TreeWriter {
  readonly #native: Native;
  readonly #baseFd: number;
  readonly #rootName: string;
  readonly #share = new TurnShare();
  /** Directories by path, each with the mode that it gets at the end. */
  readonly #modes = new Map<string, number>();
  #parent: { readonly path: string; readonly fd: number } | null = null;
  #file: OpenFile | null = null;
  #link: { readonly head: EntryHead; readonly parts: Uint8Array[]; left: number } | null = null;
  #bytes = 0;
  #entries = 0;
  #hasBegun = false;

  /** @param root where the tree is made */
  constructor(native: Native, root: Pick<Named, "dirFd" | "name">) {
    this.#native = native;
    this.#baseFd = root.dirFd;
    this.#rootName = root.name;
  }

  /** Makes everything. A name that comes again replaces, a directory only one of those. */
  async take(entries: AsyncIterable<EntryPart>): Promise<PutCounts> {
    for await (const part of entries) {
      try {
        if (part instanceof Uint8Array) await this.#content(part);
        else await this.#entry(part);
      } catch (error) {
        throw ofArchive(error);
      }
    }
    if (this.#file !== null || this.#link !== null || !this.#hasBegun) throw cutShort();
    return { bytes: this.#bytes, entries: this.#entries };
  }

  /**
   * Sets the modes of the directories, innermost first: one may be such that nobody can enter.
   *
   * @param at where the tree is now: a directory, and a name in it or `.`
   * @param isKept directories beneath it that were there before
   */
  async setModes(
    at: { readonly dirFd: number; readonly name: string },
    isKept: (path: string) => boolean = () => false,
  ): Promise<void> {
    for (const [path, mode] of [...this.#modes].reverse()) {
      await this.#share.spend();
      if (isKept(path)) continue;
      const flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
      const fd = this.#native.openBeneath(at.dirFd, posix.join(at.name, path), flags);
      try {
        fchmodSync(fd, mode);
      } finally {
        closeSync(fd);
      }
    }
  }

  /** Closes what is open. */
  close(): void {
    if (this.#file !== null) closeSync(this.#file.fd);
    this.#file = null;
    this.#leaveParent();
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
      await this.#open(head);
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
      if (this.#link.left <= 0) await this.#makeLink();
    }
  }

  #makeDirectory({ path, mode }: EntryHead): void {
    const target = this.#named(path);
    try {
      mkdirSync(target.path, PRIVATE_DIRECTORY);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST" || !lstatSync(target.path).isDirectory()) throw error;
    }
    this.#modes.set(path, mode);
  }

  async #open(head: EntryHead): Promise<void> {
    const fd = await this.#madeAnew(head, ({ dirFd, name }) =>
      this.#native.openWithin(dirFd, name, CREATE, PRIVATE_FILE),
    );
    this.#file = { fd, head, left: head.size };
  }

  #closeFile(): void {
    if (this.#file === null) return;
    fchmodSync(this.#file.fd, this.#file.head.mode);
    closeSync(this.#file.fd);
    this.#file = null;
  }

  async #makeLink(): Promise<void> {
    if (this.#link === null) return;
    const { head, parts } = this.#link;
    this.#link = null;
    const content = Buffer.concat(parts).toString("utf8");
    await this.#madeAnew(head, ({ path }) => symlinkSync(content, path));
  }

  /** Makes a file or link, in the place of one that has come before under its name. */
  async #madeAnew<T>({ path }: EntryHead, make: (target: Named) => T): Promise<T> {
    const target = this.#named(path);
    try {
      return make(target);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST" || lstatSync(target.path).isDirectory()) throw error;
    }
    await removeTree(this.#native, target);
    return make(target);
  }

  /** Its name in its directory, which stays open until another one is needed. */
  #named(path: string): Named {
    if (path === "") return named(this.#baseFd, this.#rootName);
    const inner = posix.dirname(path) === "." ? "" : posix.dirname(path);
    const parent = posix.join(this.#rootName, inner);
    if (this.#parent?.path !== parent) {
      const fd = this.#native.openBeneath(this.#baseFd, parent, DIRECTORY);
      this.#leaveParent();
      this.#parent = { path: parent, fd };
    }
    return named(this.#parent?.fd ?? -1, posix.basename(path));
  }

  #leaveParent(): void {
    if (this.#parent !== null) closeSync(this.#parent.fd);
    this.#parent = null;
  }
}

/** In a new tree nothing is in the way but what the entries themselves made. */
function ofArchive(error: unknown): unknown {
  if (!ARCHIVE_ERRNOS.includes(errnoOf(error))) return error;
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
