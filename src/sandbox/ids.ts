/**
 * Host ids of sandboxes: two of a configured range for each, one that init runs as and one for the
 * programs, so that neither is anybody on the host and no two sandboxes share one.
 *
 * A slot is taken by making a link `ids/<slot>` in the run directory whose target is the instance
 * that took it: making it is atomic, host-wide, and names the owner in the same step. Slots of dead
 * instances are freed by reap.ts.
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

const IDS_PER_SANDBOX = 2;
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
  readonly #instance: string;
  readonly #range: IdRange;
  #next = 0;

  constructor(runDir: string, options: { readonly instance: string; readonly range: IdRange }) {
    const { base, count } = options.range;
    const isWhole = Number.isInteger(base) && Number.isInteger(count);
    if (!isWhole || base < 1000 || count < IDS_PER_SANDBOX || base + count > ID_END) {
      throw new CprgError("invalid_argument", `Cannot use ids ${base} to ${base + count - 1}`, {
        field: "idRange",
        hint: `A range of at least ${IDS_PER_SANDBOX} ids from 1000 to ${ID_END - 1}`,
      });
    }
    this.#directory = idDirectory(runDir);
    this.#instance = options.instance;
    this.#range = options.range;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
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
      symlinkSync(this.#instance, this.#path(slot));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw new CprgError("failed_precondition", `Cannot take host ids in ${this.#directory}`, {
        reason: "RUN_DIR",
        hint: "The run directory (CPRG_RUN_DIR) must be writable for the server",
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

function idDirectory(runDir: string): string {
  return join(runDir, "ids");
}

/** Frees what an instance holds. Only for instances that are dead. */
export function freeIds(runDir: string, instance: string): number {
  const directory = idDirectory(runDir);
  let freed = 0;
  for (const name of listIds(runDir)) {
    const path = join(directory, name);
    if (ownerOf(path) !== instance) continue;
    rmSync(path, { force: true });
    freed += 1;
  }
  return freed;
}

/** Names of the slots that are taken in a run directory. */
export function listIds(runDir: string): string[] {
  try {
    return readdirSync(idDirectory(runDir));
  } catch {
    // No instance has ever used this run directory.
    return [];
  }
}

function ownerOf(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    // Freed in between, or not ours.
    return null;
  }
}
