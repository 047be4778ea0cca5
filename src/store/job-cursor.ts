/** Cursors of job lists: opaque to clients, the place of the last job seen to us. */

import { invalid } from "../core/errors.ts";
import { LIST_LIMIT_MAX } from "../core/job.ts";

/** Where a job stands in the order of lists. */
export interface JobPlace {
  readonly createdAt: number;
  readonly id: string;
}

/** The cursor that continues after a job. */
export function toCursor({ createdAt, id }: JobPlace): string {
  return Buffer.from(`${createdAt}:${id}`).toString("base64url");
}

/** @throws CprgError `invalid_argument` for anything that {@link toCursor} does not make */
export function fromCursor(cursor: string): JobPlace {
  const text = Buffer.from(cursor.slice(0, 512), "base64url").toString();
  const found = /^(\d{1,16}):(.{1,128})$/s.exec(text);
  const place = { createdAt: Number(found?.[1]), id: found?.[2] ?? "" };
  if (found === null || toCursor(place) !== cursor) {
    throw invalid("cursor", "Cannot list from this cursor: no list gave it");
  }
  return place;
}

/** @throws CprgError `invalid_argument` for a limit that is none */
export function checkListLimit(limit: number): void {
  if (Number.isInteger(limit) && limit >= 1 && limit <= LIST_LIMIT_MAX) return;
  throw invalid("limit", `Cannot list ${limit} jobs: from 1 to ${LIST_LIMIT_MAX}`);
}
