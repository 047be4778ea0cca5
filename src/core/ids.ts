/** Identifiers: UUIDv7 (RFC 9562 section 5.7), so that they sort by time. */

import { v7 } from "uuid";

/** A new id. */
export function newId(): string {
  return v7();
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Whether text is an id as {@link newId} makes them: anything else cannot exist. */
export function isId(text: string): boolean {
  return UUID.test(text);
}

/** An id as an error may show it: what is none may be a secret that was put in its place. */
export function shownId(text: string): string {
  return isId(text) ? `"${text}"` : "of this id";
}
