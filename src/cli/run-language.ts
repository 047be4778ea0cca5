/** The language of a program that `cprg run` is given, where `--lang` does not say. */

import { extname } from "node:path";
import { CprgError } from "../core/errors.ts";
import { usageError } from "./flags.ts";

const BY_EXTENSION: Readonly<Record<string, string>> = {
  ".py": "python",
  ".sh": "bash",
  ".bash": "bash",
  ".js": "javascript",
  ".mjs": "javascript",
  ".cjs": "javascript",
  ".ts": "typescript",
  ".mts": "typescript",
};

const BY_INTERPRETER: readonly (readonly [RegExp, string])[] = [
  [/^python[0-9.]*$/, "python"],
  [/^(?:ba|da)?sh$/, "bash"],
  [/^node(?:js)?$/, "node"],
  [/^bun$/, "typescript"],
];

/** The language of code without name and shebang. */
const DEFAULT_LANGUAGE = "python";

/**
 * `--lang`, else the shebang, else the extension, else Python for what has no file name.
 *
 * @throws CprgError for a file that says nothing
 */
export function detectLanguage(program: {
  readonly asked: string | undefined;
  readonly path: string | null;
  readonly code: string;
}): string {
  const { asked, path, code } = program;
  if (asked !== undefined) return asked;
  const found = shebangLanguage(code) ?? (path === null ? DEFAULT_LANGUAGE : extension(path));
  if (found !== null) return found;
  throw usageError(
    `Cannot tell the language of "${path}": neither its name nor a #! line says`,
    '--lang python; "cprg languages" lists them',
  );
}

/**
 * A refusal of the language in words of the command line, where any other program runs as `argv` of
 * no flag; every other error as it is.
 *
 * @param hint where to find the names that are known
 */
export function languageRefusal(error: unknown, language: string, hint: string): unknown {
  const isRefusal =
    CprgError.is(error) && error.code === "invalid_argument" && error.field === "language";
  return isRefusal ? usageError(`Cannot use language "${language}": unknown`, hint) : error;
}

function extension(path: string): string | null {
  return BY_EXTENSION[extname(path).toLowerCase()] ?? null;
}

/** `#!/usr/bin/env -S python3 -u` and `#!/bin/bash` alike. */
function shebangLanguage(code: string): string | null {
  const line = /^#![ \t]*([^\n]{1,255})/.exec(code)?.[1];
  if (line === undefined) return null;
  const words = line.trim().split(/\s+/);
  const isEnv = /(?:^|\/)env$/.test(words[0] ?? "");
  const program = isEnv
    ? words.slice(1).find((word) => !word.startsWith("-") && !word.includes("="))
    : words[0];
  const name = program?.split("/").at(-1) ?? "";
  return BY_INTERPRETER.find(([pattern]) => pattern.test(name))?.[1] ?? null;
}
