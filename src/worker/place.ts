/**
 * What a claim has to itself: a directory or a sandbox, the programs in it and its files. The host
 * itself (`plain-place.ts`) and the local engine (`sandbox-place.ts`) are such places.
 */

import type { Layers } from "../core/event.ts";
import type { Limits } from "../core/limits.ts";
import type { EntryPart, Exec, ExecSpec } from "../provider/contract.ts";

/** Kind of what is at a path. */
export type PathType = "file" | "directory" | "link" | "other";

/** What there is at a path. */
export interface PathStat {
  readonly name: string;
  readonly type: PathType;
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  /** Milliseconds since 1970. */
  readonly modifiedMs: number;
  /** Of a link, else empty. */
  readonly linkTarget: string;
}

/** A part of a file. */
export interface FileContent {
  readonly content: Uint8Array;
  /** Of the whole file, in bytes. */
  readonly size: number;
  readonly mode: number;
}

/** How something is made. */
export interface MakeOptions {
  /** Permission bits; each call names its default. */
  readonly mode?: number;
  /** Makes the directories that are missing. */
  readonly parents: boolean;
}

/** A part of a directory, by the bytes of the names. */
export interface ListOptions {
  /** Names after this one; empty: from the first. */
  readonly after: string;
  readonly limit: number;
}

/** What was made. */
export interface PutCounts {
  /** Content of files. */
  readonly bytes: number;
  readonly entries: number;
}

/** How entries are put. */
export interface PutTreeOptions {
  readonly parents: boolean;
  /** Of what comes. */
  readonly type: "file" | "directory" | "link";
  /** A directory into the one that is there. */
  readonly merge: boolean;
  readonly signal: AbortSignal;
}

/**
 * Files of a place. Paths are relative to its root, or absolute beneath root or home; errors are
 * those of proto/PROTOCOL.md section 9, "Files".
 */
export interface PlaceFiles {
  stat(path: string): Promise<PathStat>;
  list(path: string, options: ListOptions): Promise<{ entries: PathStat[]; more: boolean }>;
  /** At most `length` bytes from `offset` on. @throws CprgError `out_of_range` beyond `lengthMax` */
  read(
    path: string,
    range: { readonly offset: number; readonly length: number; readonly lengthMax: number },
  ): Promise<FileContent>;
  /** Replaces a file as a whole; without a mode it keeps that of the file, or gets 0644. */
  write(path: string, content: Uint8Array, options: MakeOptions): Promise<void>;
  /** Mode 0755. */
  makeDir(path: string, options: MakeOptions): Promise<void>;
  /** False when nothing was there. */
  remove(path: string, options: { readonly recursive: boolean }): Promise<boolean>;
  rename(from: string, to: string): Promise<void>;
  /** The entries of a file, link or tree, while they are asked for. */
  take(path: string, signal: AbortSignal): AsyncGenerator<EntryPart, void, void>;
  /** Makes a file, link or tree out of entries; what fails leaves nothing half-made. */
  put(path: string, entries: AsyncIterable<EntryPart>, options: PutTreeOptions): Promise<PutCounts>;
}

/** Where the programs of one claim run. */
export interface Place {
  readonly root: string;
  readonly home: string;
  readonly layers: Layers;
  /** Layers that are not in force, or are weaker than elsewhere. */
  readonly missing: readonly string[];
  /** Of all that runs in it; null where none is enforced. */
  readonly limits: Limits | null;
  readonly files: PlaceFiles;
  /**
   * Starts a program. Its directory is a path as those of files.
   *
   * @throws CprgError when it never ran
   */
  exec(spec: ExecSpec): Promise<Exec>;
  /** Ends every program and removes what is to be removed; a second call resolves. */
  release(): Promise<void>;
}
