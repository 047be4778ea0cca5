// Reads what SQLite wrote, from outside: https://www.sqlite.org/fileformat2.html#walformat

import { readFileSync } from "node:fs";

/** How many transactions a -wal file holds: frames that state the database's size are commits. */
export function countCommits(path: string): number {
  const wal = readFileSync(path);
  if (wal.length < 32) return 0;
  const pageBytes = wal.readUInt32BE(8);
  const salts = wal.subarray(16, 24);
  let commits = 0;
  for (let at = 32; at + 24 + pageBytes <= wal.length; at += 24 + pageBytes) {
    if (!wal.subarray(at + 8, at + 16).equals(salts)) break;
    if (wal.readUInt32BE(at + 4) > 0) commits += 1;
  }
  return commits;
}
