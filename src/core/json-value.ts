/** What JSON can say, checked: nothing is turned into something else on the way. */

import { invalid } from "./errors.ts";
import type { Json } from "./task.ts";

/** Levels of arrays and objects in each other. */
export const JSON_DEPTH_MAX = 100;

/**
 * The value as JSON has it: a copy of plain arrays and objects, without properties that are
 * `undefined`. `undefined` itself counts as null.
 *
 * @throws CprgError `invalid_argument` naming the place of what JSON cannot say: a function, a
 *   number that is none, a class's object, a text that is no Unicode, a cycle
 */
export function checkedJson(field: string, value: unknown): Json {
  return value === undefined ? null : jsonOf(field, value, 0);
}

function jsonOf(field: string, value: unknown, depth: number): Json {
  if (depth > JSON_DEPTH_MAX) throw notJson(field, `above ${JSON_DEPTH_MAX} levels deep`);
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "string") {
    if (value.isWellFormed()) return value;
    throw notJson(field, "a text with a lone surrogate");
  }
  if (typeof value === "number") {
    if (Number.isFinite(value)) return value;
    throw notJson(field, `the number ${value}`);
  }
  if (Array.isArray(value)) {
    // Not `map`, which leaves out holes.
    return Array.from(value, (item, index) => jsonOf(`${field}[${index}]`, item, depth + 1));
  }
  if (typeof value !== "object") throw notJson(field, `a value of type ${typeof value}`);
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== null && prototype !== Object.prototype) throw notJson(field, "no plain object");
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(
    entries.map(([name, each]) => [name, jsonOf(`${field}.${shortName(name)}`, each, depth + 1)]),
  );
}

function shortName(name: string): string {
  return name.toWellFormed().slice(0, 32);
}

function notJson(field: string, what: string): Error {
  return invalid(field.slice(0, 200), `Cannot use ${field.slice(0, 200)}: ${what} is not JSON`);
}

/** Freezes JSON all the way down, and gives it back. */
export function frozenJson<T extends Json>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const each of Object.values(value)) frozenJson(each as Json);
  return Object.freeze(value);
}
