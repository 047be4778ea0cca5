/**
 * What the database's file still has to grow by, and whether the disk has it. What is committed is in
 * the write-ahead log, and takes its place in the file later; a disk that is full by then leaves the log
 * for ever as it is, and no room in it for anything, not even for a removal.
 */

import type { Database } from "bun:sqlite";
import { statfsSync, statSync } from "node:fs";
import { geteuid } from "node:process";
import { pragma } from "./migrations.ts";

/** Free space from which on a disk is not looked at more closely: twice what the log holds at most. */
const FREE_BYTES_ENOUGH = 16 * 1024 * 1024;

/** Bytes beyond the end of the file that are in the write-ahead log alone. */
export function growthBytes(db: Database): number {
  const bytes = pragma(db, "page_count") * pragma(db, "page_size");
  return Math.max(0, bytes - statSync(db.filename).size);
}

/**
 * Whether the disk has room for what the file has to grow by. On a disk with little room it grows now,
 * outside of a transaction, so that little is owed when the room is gone.
 */
export function canGrow(db: Database): boolean {
  const { bavail, bfree, bsize } = statfsSync(db.filename);
  // File systems keep some blocks for root alone (tune2fs(8), -m).
  const freeBytes = (geteuid?.() === 0 ? bfree : bavail) * bsize;
  if (freeBytes >= FREE_BYTES_ENOUGH) return true;
  const owedBytes = growthBytes(db);
  if (owedBytes > freeBytes) return false;
  if (owedBytes > 0) writeBack(db);
  return true;
}

/** Writes to the file what is in the write-ahead log, as far as that can be done. */
export function writeBack(db: Database): void {
  try {
    db.run("PRAGMA wal_checkpoint(PASSIVE)");
  } catch {
    // Nothing is lost: a later one does what this one could not.
  }
}
