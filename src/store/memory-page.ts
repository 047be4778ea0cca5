/** Pages of lists that are in memory, newest first. */

import { checkListLimit, fromCursor, type JobPlace, toCursor } from "./job-cursor.ts";
import { byAge } from "./job-rules.ts";

/**
 * One page.
 *
 * @throws CprgError `invalid_argument` for a limit or cursor that is none
 */
export function pageOf<T extends JobPlace>(
  all: readonly T[],
  query: { readonly limit: number; readonly cursor?: string },
): { readonly items: readonly T[]; readonly nextCursor: string | null } {
  checkListLimit(query.limit);
  const after = query.cursor === undefined ? null : fromCursor(query.cursor);
  const found = all
    .filter((item) => after === null || byAge(item, after) < 0)
    .sort((a, b) => byAge(b, a));
  const items = found.slice(0, query.limit);
  const last = items.at(-1);
  const hasMore = last !== undefined && found.length > items.length;
  return { items, nextCursor: hasMore ? toCursor(last) : null };
}
