/**
 * Bounds of a JSON text, checked without parsing it: 16 MiB of brackets would take a second and 370
 * MB to parse.
 */

import { CprgError } from "../core/errors.ts";

/** Depth of arrays and objects. */
export const JSON_DEPTH_MAX = 16;
/** Values and names together: every file, argument and variable of the largest job, and to spare. */
export const JSON_VALUES_MAX = 20_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** @throws CprgError `invalid_argument` for JSON that is nested too deep or has too many values */
export function checkJsonBounds(text: string): void {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE:
        at = endOfString(text, at);
        break;
      case OPEN_ARRAY:
      case OPEN_OBJECT:
        depth += 1;
        values += 1;
        if (depth > JSON_DEPTH_MAX) throw beyond(`nested more than ${JSON_DEPTH_MAX} deep`);
        break;
      case CLOSE_ARRAY:
      case CLOSE_OBJECT:
        depth -= 1;
        break;
      case COMMA:
      case COLON:
        values += 1;
        break;
    }
    if (values > JSON_VALUES_MAX) throw beyond(`of more than ${JSON_VALUES_MAX} values`);
  }
}

/** Index of the quote that ends a string, or the text's end. */
function endOfString(text: string, start: number): number {
  for (let from = start + 1; ; ) {
    const end = text.indexOf('"', from);
    if (end < 0) return text.length;
    let before = end - 1;
    while (text.charCodeAt(before) === BACKSLASH) before -= 1;
    if ((end - before) % 2 === 1) return end;
    from = end + 1;
  }
}

function beyond(state: string): CprgError {
  return new CprgError("invalid_argument", `Cannot read body: it is ${state}`, { field: "body" });
}
