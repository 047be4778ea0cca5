/** The TOML file of settings: read, parsed, and held against the table's names and types. */

import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { parse } from "smol-toml";
import { CprgError } from "../core/errors.ts";
import {
  SETTING_NAMES,
  SETTINGS,
  type Setting,
  type SettingKind,
  type SettingName,
  tomlKey,
} from "./config-table.ts";
import { usageError } from "./flags.ts";
import type { RawSetting } from "./settings-parse.ts";
import { nearest } from "./suggest.ts";

/** Largest file that is read, in bytes. */
const FILE_BYTES_MAX = 1024 * 1024;
/** Permission bits of those who are neither owner nor group (inode(7)). */
const OTHERS = 0o007;
const OTHERS_WRITE = 0o002;

/** What a file holds. */
export interface ConfigFile {
  readonly settings: Readonly<Partial<Record<SettingName, RawSetting>>>;
  /** Entries of `[[keys]]`, checked by whoever uses them. */
  readonly keys: readonly unknown[];
}

/**
 * Reads a file.
 *
 * @throws CprgError `failed_precondition` when it cannot be read, is no TOML, or is open to others:
 *   nobody else may change it, or read keys in it, but by their hash; `invalid_argument` for keys
 *   that are not in the table and values of another type
 */
export async function readConfigFile(path: string): Promise<ConfigFile> {
  const { text, mode } = await readText(path);
  if ((mode & OTHERS_WRITE) !== 0) throw tooOpen(path, "others may change it", "o-w");
  const table = parseToml(path, text);
  const settings: Partial<Record<SettingName, RawSetting>> = {};
  let keys: readonly unknown[] = [];
  for (const [key, value] of Object.entries(table)) {
    if (key === "keys") {
      if (!Array.isArray(value)) throw wrongType(path, key, "[[keys]] tables");
      keys = value;
      continue;
    }
    const name = SETTING_NAMES.find((candidate) => tomlKey(candidate) === key);
    if (name === undefined) throw unknownKey(path, key);
    settings[name] = toRaw(value, SETTINGS[name].kind, (expected) =>
      wrongType(path, key, expected),
    );
    const { isSecret }: Setting<unknown> = SETTINGS[name];
    if (isSecret === true && (mode & OTHERS) !== 0) {
      throw tooOpen(path, "it holds keys, and others may read it", "o-rwx");
    }
  }
  return { settings, keys };
}

async function readText(path: string): Promise<{ readonly text: string; readonly mode: number }> {
  try {
    await using file = await open(path);
    const { mode } = await file.stat();
    const bytes = await readAtMost(file, FILE_BYTES_MAX + 1);
    if (bytes.length > FILE_BYTES_MAX) throw new Error(`larger than ${FILE_BYTES_MAX} bytes`);
    // A device or a pipe is nobody's to change by its mode.
    const isPlain = (mode & constants.S_IFMT) === constants.S_IFREG;
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return { text, mode: isPlain ? mode : 0 };
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** What there is, up to a bound: a device gives bytes without end. */
async function readAtMost(file: FileHandle, bytesMax: number): Promise<Uint8Array> {
  const bytes = Buffer.alloc(bytesMax);
  for (let size = 0; ; ) {
    const { bytesRead } = await file.read(bytes, size, bytesMax - size, null);
    size += bytesRead;
    if (bytesRead === 0 || size === bytesMax) return bytes.subarray(0, size);
  }
}

function tooOpen(path: string, state: string, change: string): CprgError {
  return new CprgError("failed_precondition", `Cannot use configuration "${path}": ${state}`, {
    op: "read configuration",
    reason: "CONFIG",
    hint: `chmod ${change} ${path}`,
  });
}

function parseToml(path: string, text: string): Readonly<Record<string, unknown>> {
  try {
    return parse(text);
  } catch (error) {
    throw unreadable(path, error);
  }
}

function unreadable(path: string, cause: unknown): CprgError {
  const why = cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : String(cause);
  return new CprgError("failed_precondition", `Cannot read configuration "${path}": ${why}`, {
    op: "read configuration",
    reason: "CONFIG",
    cause,
  });
}

function unknownKey(path: string, key: string): CprgError {
  const keys = [...SETTING_NAMES.map(tomlKey), "keys"];
  const near = nearest(key, keys);
  return usageError(
    `Cannot use key "${key}" of "${path}": unknown`,
    near === null ? `Known keys: ${keys.join(", ")}` : `Did you mean ${near}?`,
  );
}

function wrongType(path: string, key: string, expected: string): CprgError {
  return usageError(`Cannot use key "${key}" of "${path}": expected ${expected}`);
}

function toRaw(
  value: unknown,
  kind: SettingKind,
  refuse: (expected: string) => CprgError,
): RawSetting {
  switch (kind) {
    case "text":
      if (typeof value === "string") return value;
      throw refuse("a string");
    case "integer":
      if (Number.isInteger(value)) return String(value);
      throw refuse("a whole number");
    case "switch":
      if (typeof value === "boolean") return String(value);
      throw refuse("true or false");
    case "list":
      if (Array.isArray(value) && value.every((part) => typeof part === "string")) return value;
      throw refuse("a list of strings");
    case "limits":
      return limitPairs(value, refuse);
  }
}

/** `name=value` of a table of numbers. */
export function limitPairs(value: unknown, refuse: (expected: string) => CprgError): string[] {
  const isTable = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isTable) throw refuse("a table of numbers");
  return Object.entries(value).map(([name, number]) => {
    if (typeof number !== "number") throw refuse("a table of numbers");
    return `${name}=${number}`;
  });
}
