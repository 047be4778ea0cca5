/**
 * Paths that stay in a place. Each is resolved by the kernel beneath a descriptor of root or home
 * (openat2(2), RESOLVE_BENEATH), and what is then done to a name is done through a descriptor of its
 * directory: a program that exchanges a directory for a link meanwhile leads nobody out.
 */

import { closeSync, constants, lstatSync, mkdirSync, openSync } from "node:fs";
import { posix } from "node:path";
import { CprgError, invalid } from "../core/errors.ts";
import type { Native } from "../sandbox/native.ts";
import { errnoOf, fileError, pathEscapes } from "./file-error.ts";

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants;
/** fcntl.h; not among node's constants. */
const O_PATH = 0o10000000;
const DIRECTORY = O_PATH | O_DIRECTORY;

/** Times that a directory which was made may be gone again. */
const MAKE_RETRIES_MAX = 16;

/** Bytes of a path. An empty one is the root. */
export const PATH_BYTES_MAX = 4095;

/** A name in a directory that is held open. */
export interface Named {
  /** Of the directory, without rights but to pass through it. */
  readonly dirFd: number;
  readonly name: string;
  /** For calls that do not follow a link in the last component. */
  readonly path: string;
}

/** A name in a directory. */
export function named(dirFd: number, name: string): Named {
  return { dirFd, name, path: `/proc/self/fd/${dirFd}/${name}` };
}

interface Located {
  readonly fd: number;
  /** Relative to it; `.` for itself. */
  readonly path: string;
}

/** Root and home of a place. */
export class ConfinedRoots {
  readonly #native: Native;
  readonly #roots: readonly { readonly path: string; readonly fd: number }[];

  /** @param paths absolute, root first; they exist */
  constructor(native: Native, paths: readonly string[]) {
    this.#native = native;
    this.#roots = paths.map((path) => ({ path, fd: openSync(path, DIRECTORY) }));
  }

  close(): void {
    for (const { fd } of this.#roots) closeSync(fd);
  }

  /** Whether a path ends in no name: root or home themselves, or something by way of `..`. */
  isWhole(path: string): boolean {
    const at = this.#locate(path).path;
    return at === "." || posix.basename(at) === "..";
  }

  /**
   * Opens what is at a path, and follows no link in its last component.
   *
   * @throws CprgError for a path that leads out, or as open(2)
   */
  open(path: string, flags: number): number {
    const at = this.#locate(path);
    try {
      return this.#native.openWithin(at.fd, at.path, flags | O_NOFOLLOW | plainFlags(flags));
    } catch (error) {
      if (errnoOf(error) === "ENOTDIR" && this.#isLink(at)) throw isLink(path);
      throw fileError(error, "open", path);
    }
  }

  /** The directory at a path, to act on what is in it. */
  openDirectory(path: string): number {
    return this.open(path, DIRECTORY);
  }

  /**
   * The directory of a path's last component, to act on that.
   *
   * @param use.parents makes the directories that are missing
   * @returns what `act` returns; the descriptor is closed then
   */
  async named<T>(
    path: string,
    use: { readonly op: string; readonly parents?: boolean },
    act: (named: Named) => T | Promise<T>,
  ): Promise<T> {
    const { close, ...held } = this.hold(path, use.op, use.parents);
    try {
      return await act(held);
    } catch (error) {
      throw fileError(error, use.op, path);
    } finally {
      close();
    }
  }

  /** As {@link named}, for as long as the caller likes. */
  hold(path: string, op: string, parents = false): Named & { close(): void } {
    const at = this.#locate(path);
    const name = posix.basename(at.path);
    if (at.path === "." || name === "..") throw this.#namesNone(at, path, op);
    const parent = { fd: at.fd, path: posix.dirname(at.path) };
    const dirFd = parents ? this.#makeAll(parent, path) : this.#pass(parent, path);
    return { ...named(dirFd, name), close: () => closeSync(dirFd) };
  }

  /** A path that ends in no name: root or home, another directory by way of `..`, or outside. */
  #namesNone(at: Located, path: string, op: string): Error {
    closeSync(this.#pass(at, path));
    return new CprgError("failed_precondition", `Cannot ${op} ${JSON.stringify(path)}: no name`, {
      reason: "NO_NAME",
    });
  }

  #pass({ fd, path }: Located, whole: string): number {
    try {
      return this.#native.openWithin(fd, path, DIRECTORY);
    } catch (error) {
      throw fileError(error, "open", whole);
    }
  }

  /** Opens a directory and makes what is missing of it, from the first missing component on. */
  #makeAll({ fd, path }: Located, whole: string): number {
    const parts = path.split("/");
    let made = 0;
    for (let count = 1; ; ) {
      const part = parts.slice(0, count).join("/");
      try {
        const opened = this.#native.openWithin(fd, part, DIRECTORY);
        if (count === parts.length) return opened;
        closeSync(opened);
        count += 1;
      } catch (error) {
        made += 1;
        const isMissing = errnoOf(error) === "ENOENT" && made <= parts.length + MAKE_RETRIES_MAX;
        if (!isMissing) throw fileError(error, "make", whole);
        this.#make(fd, parts.slice(0, count), whole);
      }
    }
  }

  #make(fd: number, parts: readonly string[], whole: string): void {
    const name = parts.at(-1) ?? "";
    const parent = this.#pass({ fd, path: parts.slice(0, -1).join("/") || "." }, whole);
    try {
      mkdirSync(`/proc/self/fd/${parent}/${name}`, 0o755);
    } catch (error) {
      // Somebody else made it meanwhile; a link that leads nowhere is there for ever.
      if (errnoOf(error) !== "EEXIST" || name === "..") throw fileError(error, "make", whole);
    } finally {
      closeSync(parent);
    }
  }

  #isLink({ fd, path }: Located): boolean {
    const dirFd = this.#pass({ fd, path: posix.dirname(path) }, path);
    try {
      return lstatSync(`/proc/self/fd/${dirFd}/${posix.basename(path)}`).isSymbolicLink();
    } catch {
      return false;
    } finally {
      closeSync(dirFd);
    }
  }

  #locate(path: string): Located {
    checkPath(path);
    const [root] = this.#roots;
    if (!posix.isAbsolute(path)) return { fd: root?.fd ?? -1, path: plain(path) };
    for (const { path: base, fd } of this.#roots) {
      if (path === base) return { fd, path: "." };
      const prefix = base === "/" ? "/" : `${base}/`;
      if (path.startsWith(prefix)) return { fd, path: plain(path.slice(prefix.length)) };
    }
    throw pathEscapes(path);
  }
}

/** Never waits for a fifo, and takes no terminal; openat2(2) takes neither flag with O_PATH. */
function plainFlags(flags: number): number {
  return (flags & O_PATH) === 0 ? O_NONBLOCK | O_NOCTTY : 0;
}

function isLink(path: string): Error {
  return fileError(Object.assign(new Error("link"), { code: "ELOOP" }), "open", path);
}

/** Without empty and `.` parts; `..` stays, because only the kernel knows where it leads. */
function plain(path: string): string {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  return parts.length === 0 ? "." : parts.join("/");
}

function checkPath(path: string): void {
  const isText = !path.includes("\0") && path.isWellFormed();
  if (isText && Buffer.byteLength(path) <= PATH_BYTES_MAX) return;
  throw invalid("path", `A path is at most ${PATH_BYTES_MAX} bytes of UTF-8 without NUL`);
}
