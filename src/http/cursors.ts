/**
 * Cursors as clients see them: each says of which list it is, so that no other takes it, and has a
 * checksum, so that one which was cut, mistyped or added to is refused and lists nothing odd.
 */

import { invalid } from "../core/errors.ts";

/** Lists that come in pages. */
export type ListName = "jobs" | "sandboxes" | "execs" | "keys" | "tasks";

const CHECK_CHARS = 8;

/** The cursor of a list, or null where there is no further page. */
export function listCursor(list: ListName, cursor: string | null | undefined): string | null {
  if (cursor === null || cursor === undefined) return null;
  return `${list}.${cursor}.${checksum(list, cursor)}`;
}

/**
 * What the list itself reads of a cursor.
 *
 * @throws CprgError `invalid_argument` for one that another list gave, or none
 */
export function readCursor(list: ListName, text: string | undefined): { cursor?: string } {
  if (text === undefined) return {};
  const cursor = text.slice(list.length + 1, -(CHECK_CHARS + 1));
  if (text === listCursor(list, cursor)) return { cursor };
  throw invalid("cursor", `Cannot use cursor: the list of ${list} gave no such one`);
}

function checksum(list: ListName, cursor: string): string {
  const hash = new Bun.CryptoHasher("sha256").update(`${list}.${cursor}`).digest("hex");
  return hash.slice(0, CHECK_CHARS);
}
