/** One page of a directory: as many entries as an answer of `fs.ListDir` holds. */

import { readdirSync } from "node:fs";
import { UNARY_BYTES_MAX } from "../bridge/limits.ts";
import type { ListOptions, PathStat } from "./place.ts";
import { isStage } from "./tree-put.ts";

/** What an entry takes beside its texts: numbers, tags, lengths, type. */
export const ENTRY_BYTES = 64;
/** Of all entries; the rest of the answer is small. */
export const PAGE_BYTES_MAX = UNARY_BYTES_MAX - 1024;

/**
 * Names in a directory, by their bytes. Left out are those that are no UTF-8, which no message can
 * say, and those under which something is being made.
 */
export function shownNames(directory: string): string[] {
  const names: Uint8Array[] = readdirSync(directory, { encoding: "buffer" });
  return names.toSorted(Buffer.compare).flatMap((name) => {
    const text = Buffer.from(name).toString("utf8");
    return Buffer.compare(Buffer.from(text), name) === 0 && !isStage(text) ? [text] : [];
  });
}

/** How entries are found. */
export interface PageOptions extends ListOptions {
  /** None when it is gone. */
  statOf(name: string): readonly PathStat[];
}

/** The page after a name, of names as {@link shownNames} gives them. */
export function pageOf(
  names: readonly string[],
  { after, limit, statOf }: PageOptions,
): { entries: PathStat[]; more: boolean } {
  const last = Buffer.from(after);
  const entries: PathStat[] = [];
  let bytes = 0;
  for (const name of names) {
    if (after !== "" && Buffer.compare(Buffer.from(name), last) <= 0) continue;
    for (const entry of statOf(name)) {
      bytes += ENTRY_BYTES + Buffer.byteLength(entry.name) + Buffer.byteLength(entry.linkTarget);
      if (entries.length >= limit || bytes > PAGE_BYTES_MAX) return { entries, more: true };
      entries.push(entry);
    }
  }
  return { entries, more: false };
}
