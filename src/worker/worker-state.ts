/** What a worker keeps over restarts: its id, and the secret that makes the id its own. */

import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import { checkPrivate } from "../sandbox/private-directory.ts";

const WORKER_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const SECRET = /^[A-Za-z0-9_-]{1,128}$/;
const PRIVATE_FILE = 0o600;
const PRIVATE_DIRECTORY = 0o700;

/** Id and secret, on disk or in memory alone. */
export class WorkerState {
  readonly #directory: string | null;
  readonly id: string;
  #secret: string | null;

  private constructor(directory: string | null, id: string, secret: string | null) {
    this.#directory = directory;
    this.id = id;
    this.#secret = secret;
  }

  /**
   * Opens the state in a directory, which is made when it is missing.
   *
   * @param isOptional keeps it in memory where the directory cannot be written to
   * @throws CprgError `failed_precondition` naming what is wrong with the directory
   */
  static open(directory: string, { isOptional }: { readonly isOptional: boolean }): WorkerState {
    try {
      mkdirSync(directory, { recursive: true, mode: PRIVATE_DIRECTORY });
      checkPrivate(directory, { op: "keep the worker's id in", reason: "STATE_DIRECTORY" });
      const known = readWord(join(directory, "worker-id"), WORKER_ID);
      const id = known ?? newId();
      if (known === null) writeWord(join(directory, "worker-id"), id);
      // A secret belongs to the id that it was given for.
      const secret = known === null ? null : readWord(join(directory, "worker-secret"), SECRET);
      return new WorkerState(directory, id, secret);
    } catch (error) {
      const isRefused = CprgError.is(error) || (error as NodeJS.ErrnoException).code === undefined;
      if (isRefused) throw error;
      if (isOptional) return new WorkerState(null, newId(), null);
      throw new CprgError("failed_precondition", `Cannot keep the worker's id in ${directory}`, {
        reason: "STATE_DIRECTORY",
        hint: "Name a directory that this user may write to with --state-dir; with --once none is needed",
        cause: error,
      });
    }
  }

  /** Whether anything outlives this process. */
  get isKept(): boolean {
    return this.#directory !== null;
  }

  get secret(): string | undefined {
    return this.#secret ?? undefined;
  }

  /** Keeps the secret of this id. */
  saveSecret(secret: string): void {
    this.#secret = secret;
    if (this.#directory !== null) writeWord(join(this.#directory, "worker-secret"), secret);
  }
}

function readWord(path: string, pattern: RegExp): string | null {
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  if (pattern.test(text)) return text;
  throw new CprgError("failed_precondition", `Cannot use ${path}: it is no word of a worker`, {
    reason: "STATE_DIRECTORY",
    hint: "Remove it; the worker makes itself another",
  });
}

/** As a whole or not at all. */
function writeWord(path: string, word: string): void {
  const stage = `${path}.${crypto.randomUUID()}`;
  writeFileSync(stage, `${word}\n`, { mode: PRIVATE_FILE, flag: "wx" });
  renameSync(stage, path);
}
