/** Pages of lists in SQLite, newest first; what memory-page.ts is for lists in memory. */

import type { Database } from "bun:sqlite";
import { checkListLimit, fromCursor, type JobPlace, toCursor } from "./job-cursor.ts";

/** Which rows are wanted. */
export interface RowQuery {
  readonly limit: number;
  readonly cursor?: string | undefined;
  /** `SELECT columns FROM tables`. */
  readonly select: string;
  /** Conditions that all hold; there is at least one, and an index that has them and the order. */
  readonly where: readonly string[];
  /** Values that the conditions name. */
  readonly values: Readonly<Record<string, string | number>>;
  /** Columns of age and id, in the order of the index. */
  readonly place?: string;
}

/**
 * One page.
 *
 * @throws CprgError `invalid_argument` for a limit or cursor that is none
 */
export function pageOfRows<Row, Item extends JobPlace>(
  db: Database,
  { limit, cursor, select, where, values, place = "created_at, id" }: RowQuery,
  toItem: (row: Row) => Item,
): { readonly items: readonly Item[]; readonly nextCursor: string | null } {
  checkListLimit(limit);
  const after = cursor === undefined ? null : fromCursor(cursor);
  const isAfter = after === null ? [] : [`(${place}) < ($createdAt, $id)`];
  const rows = db
    .query<Row, Record<string, string | number>>(
      `${select} WHERE ${[...where, ...isAfter].join(" AND ")}
       ORDER BY ${place.replace(",", " DESC,")} DESC LIMIT $limit`,
    )
    // One more than is wanted says whether there are others.
    .all({
      ...values,
      limit: limit + 1,
      ...(after === null ? {} : { createdAt: after.createdAt, id: after.id }),
    });
  const items = rows.slice(0, limit).map(toItem);
  const last = items.at(-1);
  const hasMore = last !== undefined && rows.length > items.length;
  return { items, nextCursor: hasMore ? toCursor(last) : null };
}
