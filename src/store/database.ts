/** Opens the SQLite file: created private, locked against a second server, with our pragmas. */

import { Database } from "bun:sqlite";
import { chmodSync, closeSync, fsyncSync, mkdirSync, openSync, realpathSync } from "node:fs";
import { dirname } from "node:path";
import { CprgError } from "../core/errors.ts";
import { checkFile } from "./file-check.ts";
import { migrate } from "./migrations.ts";
import { fromSqlite } from "./wire-error.ts";

/** How long a statement waits for a lock that another process holds for a moment. */
const BUSY_TIMEOUT_MS = 5000;
/** Size of a page of a new file. */
const PAGE_BYTES = 8192;
/** Size to which the -wal file is cut after a checkpoint. */
const WAL_BYTES_KEPT = 64 * 1024 * 1024;

/** The open file and the lock that keeps it ours. */
export interface OpenDatabase {
  readonly db: Database;
  /** Its path without links. */
  readonly path: string;
  close(): void;
}

/**
 * Opens or creates the file.
 *
 * @throws CprgError `failed_precondition` when another server has it, or it is newer or foreign
 */
export function openDatabase(path: string): OpenDatabase {
  // Two names of one file must meet at one lock.
  const real = privateFile(path);
  const lock = takeLock(`${real}-lock`);
  let db: Database | undefined;
  try {
    db = new Database(real, { strict: true });
    // -wal and -shm get the mode of the file.
    chmodSync(real, 0o600);
    setPragmas(db);
    migrate(db);
  } catch (error) {
    db?.close();
    lock.close();
    throw fromSqlite(error, real);
  }
  const opened = db;
  return {
    db: opened,
    path: real,
    close: () => {
      opened.close(true);
      lock.close(true);
    },
  };
}

/**
 * Makes a file that does not exist, because SQLite would make it 0644; one that exists is only
 * looked at.
 *
 * @returns its path without links
 * @throws CprgError when it is not ours; nothing has changed then
 */
function privateFile(path: string): string {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const isNew = createNew(path);
    const real = realpathSync(path);
    if (!isNew) checkFile(real);
    return real;
  } catch (error) {
    if (CprgError.is(error)) throw error;
    throw cannotOpen(path, error);
  }
}

/** False when the file exists. */
function createNew(path: string): boolean {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if (isExisting(error)) return false;
    throw error;
  }
  const directory = openSync(dirname(path), "r");
  fsyncSync(directory);
  closeSync(directory);
  return true;
}

function isExisting(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EEXIST";
}

function cannotOpen(path: string, cause: unknown): CprgError {
  const detail = cause instanceof Error ? cause.message : String(cause);
  return new CprgError("failed_precondition", `Cannot open the store "${path}": ${detail}`, {
    op: "open store",
    cause,
  });
}

/**
 * A second database that stays locked while the first is open, also when this process is killed,
 * because the kernel drops the lock with it. An exclusive main file would shut out readers.
 */
function takeLock(path: string): Database {
  const lock = new Database(privateFile(path), { strict: true });
  try {
    lock.run("PRAGMA locking_mode = EXCLUSIVE");
    lock.run("BEGIN EXCLUSIVE");
    lock.run("COMMIT");
    return lock;
  } catch (error) {
    lock.close();
    const known = fromSqlite(error, path);
    throw known.reason === "STORE_BUSY" ? locked(path, error) : known;
  }
}

function locked(path: string, cause: unknown): CprgError {
  return new CprgError("failed_precondition", `Cannot open the store: "${path}" is locked`, {
    op: "open store",
    reason: "STORE_LOCKED",
    hint: "Another cprg server uses this data directory: stop it, or set CPRG_DATA_DIR",
    cause,
  });
}

function setPragmas(db: Database): void {
  db.run(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  // These two only take effect before the first table. A row of 64 KiB fills many pages.
  db.run(`PRAGMA page_size = ${PAGE_BYTES}`);
  db.run("PRAGMA auto_vacuum = INCREMENTAL");
  db.run("PRAGMA journal_mode = WAL");
  db.run("PRAGMA synchronous = FULL");
  db.run("PRAGMA foreign_keys = ON");
  // What is erased, such as a delivered environment, is no longer in the file.
  db.run("PRAGMA secure_delete = ON");
  db.run("PRAGMA trusted_schema = OFF");
  db.run("PRAGMA temp_store = MEMORY");
  db.run(`PRAGMA journal_size_limit = ${WAL_BYTES_KEPT}`);
}
