/**
 * Host ids of sandboxes: two of a configured range for each, one that init runs as and one for the
 * programs, so that neither is anybody on the host and no two sandboxes share one.
 *
 * A slot is taken by making a link `<base>-<slot>` in one directory for the whole host, whatever run
 * directory a server has, whose target is the directory of the instance that took it: making it is
 * atomic, and names the owner in the same step. Slots of dead instances are freed by reap.ts.
 */

import { mkdirSync, readdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";

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
const SLOT_NAME = /^\d+-\d+$/;
/** Above the largest id that a map can hold (user_namespaces(7): 2^32 - 2). */
const ID_END = 0xffff_ffff;

/** Two host ids, held until released. */
export interface SandboxIds {
  readonly init: number;
  readonly program: number;
  /** Frees them; idempotent. */
  release(): void;
}

/** Gives out ids of a range for one instance. */
export class IdPool {
  readonly #directory: string;
  readonly #owner: string;
  readonly #range: IdRange;
  #next = 0;

  /** @param options owner: the directory of the instance, whose lock says whether it lives */
  constructor(directory: string, options: { readonly owner: string; readonly range: IdRange }) {
    const { base, count } = options.range;
    const isWhole = Number.isInteger(base) && Number.isInteger(count);
    if (!isWhole || base < 1000 || count < IDS_PER_SANDBOX || base + count > ID_END) {
      throw new CprgError("invalid_argument", `Cannot use ids ${base} to ${base + count - 1}`, {
        field: "idRange",
        hint: `A range of at least ${IDS_PER_SANDBOX} ids from 1000 to ${ID_END - 1}`,
      });
    }
    this.#directory = directory;
    this.#owner = options.owner;
    this.#range = options.range;
    makeIdDirectory(directory);
  }

  /** Takes two ids. @throws CprgError `resource_exhausted` when none are left */
  take(): SandboxIds {
    const slots = Math.floor(this.#range.count / IDS_PER_SANDBOX);
    for (let tries = 0; tries < slots; tries += 1) {
      const slot = this.#next;
      this.#next = (slot + 1) % slots;
      if (this.#tryTake(slot)) return this.#held(slot);
    }
    throw new CprgError("resource_exhausted", "Cannot open a sandbox: no host ids are left", {
      reason: "NO_IDS",
      retryable: true,
      hint: `All ${slots} pairs from ${this.#range.base} are in use: give the server a larger range`,
    });
  }

  #tryTake(slot: number): boolean {
    try {
      symlinkSync(this.#owner, this.#path(slot));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw new CprgError("failed_precondition", `Cannot take host ids in ${this.#directory}`, {
        reason: "ID_DIR",
        hint: `${this.#directory} must be writable for the server`,
        cause: error,
      });
    }
  }

  #held(slot: number): SandboxIds {
    const init = this.#range.base + slot * IDS_PER_SANDBOX;
    return {
      init,
      program: init + 1,
      release: () => rmSync(this.#path(slot), { force: true }),
    };
  }

  #path(slot: number): string {
    return join(this.#directory, `${this.#range.base}-${slot}`);
  }
}

/** @throws CprgError when it cannot be made */
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
}

/** A slot that is taken. */
export interface TakenIds {
  readonly name: string;
  /** The directory of the instance that holds it. */
  readonly owner: string;
}

/** The slots that are taken. */
export function listIds(directory: string): TakenIds[] {
  let names: string[];
  try {
    names = readdirSync(directory);
  } catch {
    // Nobody on this host has ever taken any.
    return [];
  }
  return names.flatMap((name) => {
    const owner = SLOT_NAME.test(name) ? ownerOf(join(directory, name)) : null;
    return owner === null ? [] : [{ name, owner }];
  });
}

/** Frees a slot. Only for instances that are dead. */
export function freeIds(directory: string, name: string): void {
  rmSync(join(directory, name), { force: true });
}

function ownerOf(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    // Freed in between, or not ours.
    return null;
  }
}
