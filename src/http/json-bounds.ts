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

/**
 * Looks for what parsing would cost too much for, or would hide.
 *
 * @throws CprgError `invalid_argument` for JSON that is nested too deep, has too many values, or has
 *   a name twice in one object: parsers differ in which of the two they take (RFC 8259 section 4)
 */
export function checkJsonBounds(text: string): void {
  const names = new OpenNames();
  let values = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    switch (char) {
      case QUOTE: {
        const start = at;
        at = endOfString(text, start);
        names.string(() => text.slice(start, at + 1));
        break;
      }
      case OPEN_ARRAY:
      case OPEN_OBJECT:
        names.open(char === OPEN_OBJECT);
        values += 1;
        if (names.depth > JSON_DEPTH_MAX) throw beyond(`nested more than ${JSON_DEPTH_MAX} deep`);
        break;
      case CLOSE_ARRAY:
      case CLOSE_OBJECT:
        names.close();
        break;
      case COMMA:
        names.comma();
        values += 1;
        break;
      case COLON:
        values += 1;
        break;
    }
    if (values > JSON_VALUES_MAX) throw beyond(`of more than ${JSON_VALUES_MAX} values`);
  }
}

/** The arrays and objects around a place in a text, and the names in each object before it. */
class OpenNames {
  /** Null for an array. */
  readonly #open: (Set<string> | null)[] = [];
  #isNameNext = false;

  get depth(): number {
    return this.#open.length;
  }

  open(isObject: boolean): void {
    this.#open.push(isObject ? new Set() : null);
    this.#isNameNext = isObject;
  }

  close(): void {
    this.#open.pop();
  }

  comma(): void {
    this.#isNameNext = this.#open.at(-1) instanceof Set;
  }

  /**
   * @param quoted gives the string as it is written: `"a"` and `"\\u0061"` are one name
   * @throws CprgError `invalid_argument` for a name that its object has
   */
  string(quoted: () => string): void {
    const names = this.#open.at(-1);
    if (!this.#isNameNext || !names) return;
    this.#isNameNext = false;
    const name = parsedName(quoted());
    if (name === null) return;
    if (names.has(name)) throw twice(name.slice(0, 64));
    names.add(name);
  }
}

function twice(name: string): CprgError {
  return new CprgError("invalid_argument", `Cannot read body: name "${name}" is there twice`, {
    field: name,
  });
}

/** Null for what is no JSON: the parser says so. */
function parsedName(quoted: string): string | null {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    return null;
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
