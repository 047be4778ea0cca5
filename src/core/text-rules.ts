/** Rules for text that ends in an argument vector, an environment or a file system. */

import { invalid } from "./errors.ts";

/** What an error shows of a value: hostile text can be long. */
const SHOWN_CHARS = 64;

/** A value as an error message shows it: short, on one line, with escapes. */
export function shown(text: string): string {
  const short = text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
  return JSON.stringify(short.toWellFormed()).slice(1, -1);
}

/** Bytes of a text in UTF-8. */
export function utf8Bytes(text: string): number {
  return Buffer.byteLength(text, "utf8");
}

/** @throws CprgError `invalid_argument` for text that has no UTF-8 form (RFC 3629 section 3) */
export function checkWellFormed(field: string, text: string): void {
  if (text.isWellFormed()) return;
  throw invalid(
    field,
    `Cannot use ${field} "${shown(text)}": it has a lone surrogate, which no UTF-8 can express`,
    "Send bytes that are no text in base64",
  );
}

/** @throws CprgError `invalid_argument` for text that the kernel's C strings cannot carry */
export function checkCString(field: string, text: string): void {
  checkWellFormed(field, text);
  if (text.includes("\0")) {
    throw invalid(field, `Cannot use ${field} "${shown(text)}": it has a NUL byte`);
  }
}

/**
 * How many bytes a base64 text stands for: padded, canonical, nothing between (RFC 4648 section 4).
 * It is decoded and encoded again, because a regular expression gives up on megabytes.
 *
 * @throws CprgError `invalid_argument`: decoders that skip what they do not know would change it
 */
export function base64Bytes(field: string, text: string): number {
  const bytes = Buffer.from(text, "base64");
  if (bytes.toString("base64") === text) return bytes.length;
  throw invalid(
    field,
    `Cannot use ${field} "${shown(text)}": it is not base64`,
    "Use the alphabet of RFC 4648 section 4, padded with =",
  );
}
