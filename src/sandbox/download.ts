/**
 * Files and trees out of a sandbox onto the host. Everything is made beside the destination under a
 * private name and renamed at the end; what fails or is cancelled leaves nothing. A link is made,
 * never followed, and refused when it would lead out of what is downloaded.
 */

import { randomUUID } from "node:crypto";
import {
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  renameSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { CprgError } from "../core/errors.ts";
import { TurnShare } from "../core/turn.ts";
import type { EntryHead, EntrySink } from "../provider/contract.ts";
import { BytesBound } from "./bytes-bound.ts";
import { pack, type Transfer, type TransferHost } from "./transfer.ts";

const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** Only the server may look into what is not whole yet. */
const PRIVATE_DIRECTORY = 0o700;
const PRIVATE_FILE = 0o600;

/**
 * Copies what is at the transfer's path to a host path, replacing what is there.
 *
 * @throws CprgError `permission_denied` for a link that leads out, `data_loss` for a bad stream,
 *   `resource_exhausted` for more bytes than the sandbox's disk can hold
 */
export async function downloadTree(
  host: TransferHost,
  transfer: Transfer,
  destination: string,
): Promise<void> {
  const bytes = BytesBound.ofDisk(host.sandbox.workspaceFd, `download ${transfer.path}`);
  await writeTree(destination, { bytes, fill: (sink) => pack(host, transfer, sink) });
}

/** What is written to a host path, and how much it may be. */
export interface TreeSource {
  readonly bytes: BytesBound;
  /** Hands all entries to a sink. */
  fill(sink: EntrySink): Promise<void>;
}

/**
 * Makes a file or tree at a host path out of entries, replacing what is there.
 *
 * @throws CprgError as {@link downloadTree}, and whatever `fill` throws; then nothing is left
 */
export async function writeTree(destination: string, source: TreeSource): Promise<void> {
  const target = resolve(destination);
  mkdirSync(dirname(target), { recursive: true });
  const stage = join(dirname(target), `.cprg-stage-${randomUUID()}`);
  const writer = new StageWriter(stage, source.bytes);
  try {
    await source.fill(writer);
    await writer.finish();
    await replace(stage, target);
  } finally {
    writer.abandon();
    await rm(stage, { recursive: true, force: true });
  }
}

/** A directory cannot be renamed over one that is not empty, nor over a file. */
async function replace(stage: string, target: string): Promise<void> {
  try {
    renameSync(stage, target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOTEMPTY" && code !== "EEXIST" && code !== "EISDIR" && code !== "ENOTDIR") {
      throw new CprgError("failed_precondition", `Cannot write ${target}`, { cause: error });
    }
    const old = join(
      dirname(target),
      `.cprg-stage-${randomUUID()}-${basename(target)}`.slice(0, 200),
    );
    renameSync(target, old);
    try {
      renameSync(stage, target);
    } catch (cause) {
      renameSync(old, target);
      throw new CprgError("failed_precondition", `Cannot write ${target}`, { cause });
    }
    await rm(old, { recursive: true, force: true });
  }
}

/** Bytes of all paths of one stream, which are remembered until its end. */
const PATHS_BYTES_MAX = 64 * 1024 * 1024;

/** Makes the entries beneath a stage. */
class StageWriter implements EntrySink {
  readonly #stage: string;
  readonly #bytes: BytesBound;
  readonly #share = new TurnShare();
  /** Directories that this stream made, with the modes that they get at the end. */
  readonly #directories = new Map<string, number>();
  readonly #files = new Map<string, number>();
  #open: { readonly fd: number; left: number } | null = null;
  #link: { readonly path: string; readonly parts: Uint8Array[]; left: number } | null = null;
  #root: EntryHead["type"] | null = null;
  #pathsBytes = 0;
  #isAbandoned = false;

  constructor(stage: string, bytes: BytesBound) {
    this.#stage = stage;
    this.#bytes = bytes;
  }

  async entry(head: EntryHead): Promise<void> {
    this.#checkPlace(head.path, head.type);
    this.#bytes.add(head.size);
    this.#pathsBytes += head.path.length;
    if (this.#pathsBytes > PATHS_BYTES_MAX) throw pathsTooLong();
    await this.#share.spend();
    this.#checkWanted();
    const path = this.#at(head.path);
    if (head.type === "directory") {
      mkdirSync(path, { mode: PRIVATE_DIRECTORY });
      this.#directories.set(head.path, head.mode);
    } else if (head.type === "file") {
      this.#open = { fd: openSync(path, CREATE, PRIVATE_FILE), left: head.size };
      this.#files.set(head.path, head.mode);
      if (head.size === 0) this.#closeFile();
    } else {
      this.#link = { path: head.path, parts: [], left: head.size };
      if (head.size === 0) throw linkEscapes(head.path, "");
    }
  }

  async content(bytes: Uint8Array): Promise<void> {
    this.#checkWanted();
    if (this.#open !== null) {
      for (let at = 0; at < bytes.length; ) at += writeSync(this.#open.fd, bytes, at);
      this.#open.left -= bytes.length;
      if (this.#open.left === 0) this.#closeFile();
    } else if (this.#link !== null) {
      this.#link.parts.push(bytes);
      this.#link.left -= bytes.length;
      if (this.#link.left === 0) this.#makeLink(this.#link);
    }
  }

  /** Sets the modes, innermost first: a directory may be one that nobody can enter. */
  async finish(): Promise<void> {
    if (this.#root === null) throw new CprgError("data_loss", "The sandbox sent nothing");
    // What came later is never above what came before it.
    for (const [path, mode] of [...this.#files, ...[...this.#directories].reverse()]) {
      await this.#share.spend();
      chmodSync(this.#at(path), mode);
    }
  }

  /**
   * Closes what a failure left open, and takes nothing more: who stops a transfer does not wait for
   * what is still being unpacked, which would make files where nobody looks any more.
   */
  abandon(): void {
    this.#isAbandoned = true;
    this.#closeFile();
  }

  #checkWanted(): void {
    if (this.#isAbandoned) throw new CprgError("canceled", "Cannot write: the transfer is over");
  }

  #at(path: string): string {
    return path === "" ? this.#stage : join(this.#stage, path);
  }

  /** Every parent is a directory that this stream made: never a link, never outside. */
  #checkPlace(path: string, type: EntryHead["type"]): void {
    const isFirst = this.#root === null;
    this.#root ??= path === "" ? type : "directory";
    if (isFirst && path === "") return;
    const parent = path.includes("/") ? posix.dirname(path) : "";
    const isTaken = path === "" || this.#directories.has(path) || this.#files.has(path);
    if (this.#root === "directory" && this.#directories.has(parent) && !isTaken) return;
    throw new CprgError("data_loss", `The sandbox sent ${JSON.stringify(path)} out of place`);
  }

  #closeFile(): void {
    if (this.#open === null) return;
    closeSync(this.#open.fd);
    this.#open = null;
  }

  #makeLink({ path, parts }: { readonly path: string; readonly parts: Uint8Array[] }): void {
    this.#link = null;
    const target = Buffer.concat(parts).toString("utf8");
    if (leadsOut(path, target)) throw linkEscapes(path, target);
    symlinkSync(target, this.#at(path));
    this.#files.delete(path);
  }
}

function pathsTooLong(): CprgError {
  return new CprgError(
    "resource_exhausted",
    `Cannot download: its paths are longer than ${PATHS_BYTES_MAX} bytes together`,
    { reason: "OUT_PATHS", hint: "Pack the tree into one file in the sandbox, or take out less" },
  );
}

/**
 * Whether a link may lead out. `..` counts from where the link itself is, in a directory that this
 * stream made. After a name it would count from wherever that name, as a link, leads: refused, so
 * that what no single link does no chain of them does either.
 */
export function leadsOut(path: string, target: string): boolean {
  // Alone, it has nothing that it could lead to.
  if (path === "" || posix.isAbsolute(target) || target.includes("\0")) return true;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const named = parts.findIndex((part) => part !== "..");
  const up = named === -1 ? parts.length : named;
  const depth = path.split("/").length - 1;
  return up > depth || parts.lastIndexOf("..") >= up;
}

function linkEscapes(path: string, target: string): CprgError {
  return new CprgError(
    "failed_precondition",
    `Cannot download the link ${JSON.stringify(path)}: ${JSON.stringify(target.slice(0, 256))} leads out of what is downloaded`,
    {
      reason: "LINK_ESCAPES",
      hint: "Remove the link in the sandbox, or download what it points to",
    },
  );
}
