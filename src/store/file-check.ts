/** Tells whether a file is ours to open, before anything of it is locked or changed. */

import { constants, Database } from "bun:sqlite";
import { lstatSync, statSync } from "node:fs";
import { geteuid } from "node:process";
import { CprgError } from "../core/errors.ts";
import { checkOrigin } from "./migrations.ts";
import { fromSqlite } from "./wire-error.ts";

const READ_ONLY = constants.SQLITE_OPEN_READONLY | constants.SQLITE_OPEN_URI;

/**
 * Looks at a file that exists, and leaves it and its folder as they are.
 *
 * @param path without links
 * @throws CprgError `failed_precondition` for what is no regular file of this user, newer, or
 *   another program's; `data_loss` for what is no database
 */
export function checkFile(path: string): void {
  const stats = lstatSync(path);
  if (!stats.isFile()) throw notOurs(path, "it is no regular file");
  if (stats.uid !== geteuid?.()) throw notOurs(path, "it belongs to another user");
  try {
    const db = new Database(immutableUri(path), READ_ONLY);
    try {
      checkOrigin(db);
    } finally {
      db.close();
    }
  } catch (error) {
    const known = fromSqlite(error, path);
    if (known.reason === "STORE_DAMAGED" && hasLog(path)) return;
    throw known;
  }
}

/**
 * Whether pages of a file wait in its -wal, which an immutable look does not see: after a death in the
 * middle of a checkpoint the first page counts some that are not there yet, and that looks like damage.
 * Opening it for good puts them in, and finds what is wrong in truth.
 */
function hasLog(path: string): boolean {
  return (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

/**
 * Takes no lock and makes no -wal or -shm (sqlite.org/uri.html). Only SQLite may open the file:
 * closing a descriptor of anybody else would drop this process's POSIX locks on it
 * (sqlite.org/howtocorrupt.html section 2.2).
 */
function immutableUri(path: string): string {
  return `file:${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}?immutable=1`;
}

function notOurs(path: string, state: string): CprgError {
  return new CprgError("failed_precondition", `Cannot open the store "${path}": ${state}`, {
    op: "open store",
    reason: "STORE_FOREIGN",
    hint: "Name another file with CPRG_DB",
  });
}
