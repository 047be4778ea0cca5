/**
 * Host ids of sandboxes: two of a configured range for each, one that init runs as and one for the
 * programs, so that neither is anybody on the host and no two sandboxes share one.
 *
 * A slot is a file, named by its first id, in one directory for the whole host, whatever run
 * directory and range a server has. It is taken while somebody holds its lock, so it is free the
 * moment its server is gone, and no other way. Slots begin at even ids: two ranges that overlap
 * have slots in common, never slots that overlap.
 */

import { closeSync, fstatSync, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Native } from "./native.ts";
import { checkPrivate } from "./private-directory.ts";

/** A range of host ids, used as uids and as gids. */
export interface IdRange {
  readonly base: number;
  readonly count: number;
}

/** Above what useradd and subuid(5) give out by default. */
export const DEFAULT_ID_RANGE: IdRange = { base: 1_900_000_000, count: 65_536 };

/** Where every server of this host takes its ids. */
export const HOST_ID_DIRECTORY = "/run/cprg/ids";

const IDS_PER_SANDBOX = 2;
const SLOT_NAME = /^\d+$/;
/** Tries for a slot whose file is removed under way. */
const SLOT_TRIES_MAX = 10;
/** Above the largest id that a map can hold (user_namespaces(7): 2^32 - 2). */
const ID_END = 0xffff_ffff;

/** Two host ids, held until released. */
export interface SandboxIds {
  readonly init: number;
  readonly program: number;
  /** Frees them; idempotent. */
  release(): void;
}

/** Where a sandbox's ids come from. */
export interface IdSource {
  /** @throws CprgError `resource_exhausted` when none are left */
  take(): SandboxIds;
}

/** Gives out ids of a range. */
export class IdPool implements IdSource {
  readonly #native: Native;
  readonly #directory: string;
  readonly #first: number;
  readonly #slots: number;
  #next = 0;

  constructor(
    native: Native,
    { directory, range }: { readonly directory: string; readonly range: IdRange },
  ) {
    const { base, count } = range;
    const first = base + (base % IDS_PER_SANDBOX);
    const slots = Math.floor((base + count - first) / IDS_PER_SANDBOX);
    const isWhole = Number.isInteger(base) && Number.isInteger(count);
    if (!isWhole || base < 1000 || slots < 1 || base + count > ID_END) {
      throw new CprgError("invalid_argument", `Cannot use ids ${base} to ${base + count - 1}`, {
        field: "idRange",
        hint: `A range of at least ${IDS_PER_SANDBOX} ids, the first even, from 1000 to ${ID_END - 1}`,
      });
    }
    this.#native = native;
    this.#directory = directory;
    this.#first = first;
    this.#slots = slots;
    makeIdDirectory(directory);
  }

  /** Takes two ids. @throws CprgError `resource_exhausted` when none are left */
  take(): SandboxIds {
    for (let tries = 0; tries < this.#slots; tries += 1) {
      const slot = this.#next;
      this.#next = (slot + 1) % this.#slots;
      const init = this.#first + slot * IDS_PER_SANDBOX;
      const lock = this.#tryTake(init);
      if (lock === null) continue;
      return { init, program: init + 1, release: once(() => this.#release(init, lock)) };
    }
    throw new CprgError("resource_exhausted", "Cannot open a sandbox: no host ids are left", {
      reason: "NO_IDS",
      retryable: true,
      hint: `All ${this.#slots} pairs from ${this.#first} are in use: give the server a larger range`,
    });
  }

  #tryTake(id: number): number | null {
    try {
      return lockSlot(this.#native, join(this.#directory, String(id)));
    } catch (cause) {
      throw new CprgError(
        "failed_precondition",
        `Cannot take host ids in ${this.#directory}: ${(cause as Error).message}`,
        {
          reason: "ID_DIR",
          hint: `${this.#directory} must be writable for the server, which needs a descriptor for each sandbox (ulimit -n)`,
          cause,
        },
      );
    }
  }

  #release(id: number, lock: number): void {
    dropSlot(join(this.#directory, String(id)), lock);
  }
}

function once(act: () => void): () => void {
  let isDone = false;
  return () => {
    if (isDone) return;
    isDone = true;
    act();
  };
}

/** The descriptor that holds a slot, or null when it is taken. */
function lockSlot(native: Native, path: string): number | null {
  for (let tries = 0; tries < SLOT_TRIES_MAX; tries += 1) {
    const lock = native.lock(path);
    if (lock === null) return null;
    if (isAt(path, lock)) return lock;
    // Whoever held it removed the file between its opening and its locking: it locks out nobody.
    closeSync(lock);
  }
  return null;
}

/** Frees a slot; the file is removed while its lock is held, and only if it is still this one. */
function dropSlot(path: string, lock: number): void {
  try {
    if (isAt(path, lock)) rmSync(path, { force: true });
  } finally {
    closeSync(lock);
  }
}

function isAt(path: string, fd: number): boolean {
  const there = statSync(path, { throwIfNoEntry: false });
  const held = fstatSync(fd);
  return there?.ino === held.ino && there.dev === held.dev;
}

/** @throws CprgError when it cannot be made, or others may write to it */
export function makeIdDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new CprgError("failed_precondition", `Cannot take host ids in ${directory}`, {
      reason: "ID_DIR",
      hint: `${directory} must be a directory that the server may write to`,
      cause,
    });
  }
  checkPrivate(directory, { op: "take host ids in", reason: "ID_DIR" });
}

/** First ids of the slots that have a file: those that are taken, and those of servers that died. */
export function listIds(directory: string): string[] {
  try {
    return readdirSync(directory).filter((name) => SLOT_NAME.test(name));
  } catch {
    // Nobody on this host has ever taken any.
    return [];
  }
}

/** Removes the files of servers that died; nobody needs them gone, they only pile up. */
export function sweepIds(native: Native, directory: string): number {
  let swept = 0;
  for (const name of listIds(directory)) {
    const path = join(directory, name);
    const lock = lockSlot(native, path);
    if (lock === null) continue;
    dropSlot(path, lock);
    swept += 1;
  }
  return swept;
}
