/** Files of a place that is a directory of this host, confined to it: `confined-roots.ts`. */

import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  read,
  readlinkSync,
  renameSync,
  rmdirSync,
  type Stats,
  unlinkSync,
} from "node:fs";
import { promisify } from "node:util";
import { CprgError } from "../core/errors.ts";
import type { EntryPart } from "../provider/contract.ts";
import type { Native } from "../sandbox/native.ts";
import type { ConfinedRoots, Named } from "./confined-roots.ts";
import { errnoOf, fileError } from "./file-error.ts";
import { pageOf, shownNames } from "./list-page.ts";
import type {
  FileContent,
  ListOptions,
  MakeOptions,
  PathStat,
  PlaceFiles,
  PutCounts,
  PutTreeOptions,
} from "./place.ts";
import { checkReplaced, mergeTree, putTree } from "./tree-put.ts";
import { removeTree } from "./tree-remove.ts";
import { takeDirectory, takeTree } from "./tree-take.ts";

const { O_DIRECTORY, O_RDONLY } = constants;
const O_PATH = 0o10000000;
const MODES = 0o777;
const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;

const readAsync = promisify(read);

/** Files beneath two directories. */
export class PlainFiles implements PlaceFiles {
  readonly #native: Native;
  readonly #roots: ConfinedRoots;

  constructor(native: Native, roots: ConfinedRoots) {
    this.#native = native;
    this.#roots = roots;
  }

  async stat(path: string): Promise<PathStat> {
    if (this.#roots.isWhole(path)) return this.#statWhole(path);
    return await this.#at(path, "stat", ({ path: at, name }) => statOf(at, name));
  }

  async list(path: string, { after, limit }: ListOptions) {
    const fd = this.#roots.open(path, O_RDONLY | O_DIRECTORY);
    try {
      const at = `/proc/self/fd/${fd}`;
      return pageOf(shownNames(at), {
        after,
        limit,
        statOf: (name) => statIfThere(`${at}/${name}`, name),
      });
    } catch (error) {
      throw fileError(error, "list", path);
    } finally {
      closeSync(fd);
    }
  }

  async read(
    path: string,
    { offset, length, lengthMax }: { offset: number; length: number; lengthMax: number },
  ): Promise<FileContent> {
    const fd = this.#roots.open(path, O_RDONLY);
    try {
      const status = fstatSync(fd);
      if (!status.isFile()) throw notFile(path, status);
      const left = Math.max(0, status.size - offset);
      const wanted = length === 0 ? left : Math.min(length, left);
      if (wanted > lengthMax) throw tooLarge(wanted, lengthMax);
      const content = new Uint8Array(wanted);
      let at = 0;
      while (at < wanted) {
        const { bytesRead } = await readAsync(fd, content, at, wanted - at, offset + at);
        if (bytesRead === 0) break;
        at += bytesRead;
      }
      return { content: content.subarray(0, at), size: status.size, mode: status.mode & MODES };
    } catch (error) {
      throw fileError(error, "read", path);
    } finally {
      closeSync(fd);
    }
  }

  async write(path: string, content: Uint8Array, { mode, parents }: MakeOptions): Promise<void> {
    await this.#roots.named(path, { op: "write", parents }, async (target) => {
      const old = statusIfThere(target.path);
      if (old !== null) refuseToReplace(path, old);
      const file = { type: "file", path: "", size: content.length } as const;
      const own = old?.isFile() ? old.mode & MODES : FILE_MODE;
      await putTree(this.#native, target, both({ ...file, mode: mode ?? own }, content));
    });
  }

  async makeDir(path: string, { mode, parents }: MakeOptions): Promise<void> {
    if (this.#roots.isWhole(path)) {
      if (parents) return;
      throw fileError(errno("EEXIST"), "make", path);
    }
    await this.#roots.named(path, { op: "make", parents }, ({ dirFd, name, path: at }) => {
      try {
        mkdirSync(at, mode ?? DIRECTORY_MODE);
      } catch (error) {
        const isThere = errnoOf(error) === "EEXIST" && lstatSync(at).isDirectory();
        if (parents && isThere) return;
        throw error;
      }
      if (mode === undefined) return;
      // As it was asked for, whatever the umask.
      const fd = this.#native.openBeneath(dirFd, name, O_RDONLY | O_DIRECTORY);
      try {
        fchmodSync(fd, mode);
      } finally {
        closeSync(fd);
      }
    });
  }

  async remove(path: string, { recursive }: { readonly recursive: boolean }): Promise<boolean> {
    try {
      return await this.#at(path, "remove", async (target) => {
        if (recursive) return await removeTree(this.#native, target);
        if (lstatSync(target.path).isDirectory()) rmdirSync(target.path);
        else unlinkSync(target.path);
        return true;
      });
    } catch (error) {
      if (CprgError.is(error) && error.code === "not_found") return false;
      throw error;
    }
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#at(from, "rename", (source) =>
      this.#at(to, "rename to", (target) => {
        const old = statusIfThere(target.path);
        const moved = lstatSync(source.path);
        // An empty directory would give way to another.
        if (old !== null && (old.isDirectory() || moved.isDirectory())) throw errno("EEXIST");
        renameSync(source.path, target.path);
      }),
    );
  }

  async *take(path: string, signal: AbortSignal): AsyncGenerator<EntryPart, void, void> {
    try {
      for await (const part of this.#roots.isWhole(path)
        ? this.#takeWhole(path)
        : this.#takeNamed(path)) {
        if (signal.aborted) throw signal.reason;
        yield part;
      }
    } catch (error) {
      throw fileError(error, "download", path);
    }
  }

  async put(
    path: string,
    entries: AsyncIterable<EntryPart>,
    { parents, merge, type }: PutTreeOptions,
  ): Promise<PutCounts> {
    if (merge) return await this.#merge(path, entries, parents);
    return await this.#roots.named(path, { op: "upload", parents }, async (target) => {
      const old = statusIfThere(target.path);
      if (old?.isSymbolicLink()) throw linkThere(path);
      // Before anything is sent, and once more when it takes its place.
      checkReplaced(type === "directory", old);
      return await putTree(this.#native, target, entries);
    });
  }

  async #merge(
    path: string,
    entries: AsyncIterable<EntryPart>,
    parents: boolean,
  ): Promise<PutCounts> {
    if (parents) await this.makeDir(path, { parents });
    const fd = this.#roots.openDirectory(path);
    try {
      return await mergeTree(this.#native, fd, entries);
    } catch (error) {
      throw fileError(error, "upload", path);
    } finally {
      closeSync(fd);
    }
  }

  async *#takeNamed(path: string): AsyncGenerator<EntryPart, void, void> {
    const { dirFd, name, close } = this.#roots.hold(path, "download");
    try {
      yield* takeTree(this.#native, { dirFd, name });
    } finally {
      close();
    }
  }

  async *#takeWhole(path: string): AsyncGenerator<EntryPart, void, void> {
    const fd = this.#roots.open(path, O_RDONLY | O_DIRECTORY);
    try {
      yield* takeDirectory(this.#native, fd);
    } finally {
      closeSync(fd);
    }
  }

  #statWhole(path: string): PathStat {
    const fd = this.#roots.open(path, O_PATH);
    try {
      return pathStat(fstatSync(fd), { name: "", linkTarget: "" });
    } finally {
      closeSync(fd);
    }
  }

  #at<T>(path: string, op: string, act: (named: Named) => T | Promise<T>): Promise<T> {
    return this.#roots.named(path, { op }, act);
  }
}

async function* both(head: EntryPart, content: Uint8Array): AsyncGenerator<EntryPart> {
  yield head;
  if (content.length > 0) yield content;
}

function statIfThere(at: string, name: string): PathStat[] {
  try {
    return [statOf(at, name)];
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw error;
  }
}

function statusIfThere(at: string): Stats | null {
  return lstatSync(at, { throwIfNoEntry: false }) ?? null;
}

function statOf(at: string, name: string): PathStat {
  const status = lstatSync(at);
  return pathStat(status, { name, linkTarget: status.isSymbolicLink() ? readlinkSync(at) : "" });
}

function pathStat(
  status: Stats,
  { name, linkTarget }: { readonly name: string; readonly linkTarget: string },
): PathStat {
  const type = status.isFile()
    ? "file"
    : status.isDirectory()
      ? "directory"
      : status.isSymbolicLink()
        ? "link"
        : "other";
  const { size, mode, mtimeMs } = status;
  return { name, type, size, mode: mode & MODES, modifiedMs: Math.floor(mtimeMs), linkTarget };
}

function refuseToReplace(path: string, old: Stats): void {
  if (old.isSymbolicLink()) throw linkThere(path);
  if (old.isDirectory()) {
    throw fileError(errno("EISDIR"), "write", path);
  }
}

function linkThere(path: string): CprgError {
  return fileError(errno("ELOOP"), "write", path);
}

function errno(code: string): Error {
  return Object.assign(new Error(code), { code });
}

function notFile(path: string, status: Stats): CprgError {
  const code = status.isDirectory() ? "EISDIR" : "EINVAL";
  return fileError(errno(code), "read", path);
}

function tooLarge(bytes: number, bytesMax: number): CprgError {
  return new CprgError("out_of_range", `${bytes} bytes were asked for, at most ${bytesMax}`, {
    reason: "TOO_LARGE",
    hint: "Read in parts, or use fs.Download",
  });
}
