/**
 * Entries put at a place. They are made beside it under a private name and renamed at the end, as a
 * whole or, into a directory that is there, name by name. What fails, or is given up, leaves nothing.
 */

import { closeSync, constants, lstatSync, readdirSync, renameSync, type Stats } from "node:fs";
import { posix } from "node:path";
import { TurnShare } from "../core/turn.ts";
import type { EntryPart } from "../provider/contract.ts";
import type { Native } from "../sandbox/native.ts";
import { type Named, named } from "./confined-roots.ts";
import { errnoOf } from "./file-error.ts";
import type { PutCounts } from "./place.ts";
import { removeTree } from "./tree-remove.ts";
import { TreeWriter } from "./tree-writer.ts";

const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
/** Of names that are not shown while something is made under them; those of process 1 begin so, too. */
export const STAGE_PREFIX = ".cprg-stage-";

/** A name beside a place that nobody else uses. */
export function stageName(): string {
  return `${STAGE_PREFIX}${crypto.randomUUID()}`;
}

/** Whether something is being made under a name. */
export function isStage(name: string): boolean {
  return name.startsWith(STAGE_PREFIX);
}

/**
 * Makes what the entries say at a name, in the place of what is there: a file or link of one of
 * these, a directory of a directory.
 *
 * @throws what the entries throw, what the kernel says; then nothing is left of it
 */
export async function putTree(
  native: Native,
  target: Named,
  entries: AsyncIterable<EntryPart>,
): Promise<PutCounts> {
  const stage = named(target.dirFd, stageName());
  const writer = new TreeWriter(native, stage);
  try {
    const counts = await writer.take(entries);
    await writer.setModes(stage);
    await replace(native, { stage, target });
    return counts;
  } finally {
    writer.close();
    await removeTree(native, stage);
  }
}

/**
 * Makes what the entries say in a directory that is there. Directories that are there keep their
 * modes; nothing is moved unless everything can be.
 */
export async function mergeTree(
  native: Native,
  dirFd: number,
  entries: AsyncIterable<EntryPart>,
): Promise<PutCounts> {
  const stage = named(dirFd, stageName());
  const writer = new TreeWriter(native, stage);
  try {
    const counts = await writer.take(entries);
    const merge = new Merge(native, dirFd);
    await merge.check(stage.name);
    await merge.move(stage.name);
    await writer.setModes({ dirFd, name: "." }, (path) => merge.kept.has(path));
    return counts;
  } finally {
    writer.close();
    await removeTree(native, stage);
  }
}

/** A staged tree onto one that is there. */
class Merge {
  /** Directories that were there, by their paths in the tree. */
  readonly kept = new Set<string>([""]);
  readonly #native: Native;
  readonly #dirFd: number;
  readonly #share = new TurnShare();

  constructor(native: Native, dirFd: number) {
    this.#native = native;
    this.#dirFd = dirFd;
  }

  /** @throws EEXIST and EISDIR for what meets another type */
  async check(stage: string, path = ""): Promise<void> {
    await this.#each(stage, path, (from, to) =>
      checkReplaced(lstatSync(from).isDirectory(), statusOf(to)),
    );
  }

  async move(stage: string): Promise<void> {
    await this.#each(stage, "", (from, to) => renameSync(from, to));
  }

  /** Calls for each name that does not meet a directory with a directory, and goes into those. */
  async #each(stage: string, path: string, act: (from: string, to: string) => void): Promise<void> {
    const flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    const fromFd = this.#native.openBeneath(this.#dirFd, posix.join(stage, path), flags);
    try {
      const toFd = this.#native.openBeneath(this.#dirFd, path === "" ? "." : path, flags);
      try {
        for (const name of readdirSync(`/proc/self/fd/${fromFd}`)) {
          await this.#share.spend();
          const [from, to] = [named(fromFd, name).path, named(toFd, name).path];
          const inner = posix.join(path, name);
          if (!lstatSync(from).isDirectory() || statusOf(to)?.isDirectory() !== true) act(from, to);
          else {
            this.kept.add(inner);
            await this.#each(stage, inner, act);
          }
        }
      } finally {
        closeSync(toFd);
      }
    } finally {
      closeSync(fromFd);
    }
  }
}

/** A directory can be renamed over an empty one only: the old one steps aside. */
async function replace(
  native: Native,
  { stage, target }: { readonly stage: Named; readonly target: Named },
): Promise<void> {
  const old = statusOf(target.path);
  checkReplaced(lstatSync(stage.path).isDirectory(), old);
  try {
    renameSync(stage.path, target.path);
    return;
  } catch (error) {
    if (!["ENOTEMPTY", "EEXIST"].includes(errnoOf(error))) throw error;
  }
  const aside = named(target.dirFd, stageName());
  renameSync(target.path, aside.path);
  try {
    renameSync(stage.path, target.path);
  } catch (error) {
    renameSync(aside.path, target.path);
    throw error;
  }
  await removeTree(native, aside);
}

/** What may take whose place (PROTOCOL.md section 9, "Files"), as the kernel would say it. */
export function checkReplaced(isDirectory: boolean, old: Stats | null): void {
  if (old === null || isDirectory === old.isDirectory()) return;
  const code = isDirectory ? "EEXIST" : "EISDIR";
  throw Object.assign(new Error("another type is there"), { code });
}

function statusOf(path: string): Stats | null {
  return lstatSync(path, { throwIfNoEntry: false }) ?? null;
}
