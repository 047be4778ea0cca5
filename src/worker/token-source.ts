/**
 * Where a worker's token comes from, and how it leaves the process's arguments and environment: the
 * program writes it into a pipe and executes itself anew without it. What was given in a file or on
 * standard input was in neither.
 */

import { closeSync, readFileSync, writeSync } from "node:fs";
import { CprgError } from "../core/errors.ts";
import type { Native } from "../sandbox/native.ts";

/** Characters of a token: it travels in one header. */
const TOKEN = /^[\x21-\x7e]{1,4096}$/;
const INHERITED = /^\/proc\/self\/fd\/(\d+)$/;

/**
 * The token in a text: a file's content, or what came on standard input.
 *
 * @throws CprgError `invalid_argument` when it is none
 */
export function parseToken(text: string, from: string): string {
  const token = text.trim();
  if (TOKEN.test(token)) return token;
  throw new CprgError("invalid_argument", `Cannot use the token from ${from}: it is none`, {
    reason: "TOKEN",
    hint: "A token is one line of printable characters without blanks, at most 4096",
  });
}

/** Reads a token file; a descriptor that a restart left is closed. */
export function readTokenFile(path: string): string {
  const inherited = INHERITED.exec(path)?.[1];
  try {
    return parseToken(readFileSync(path, "utf8"), inherited === undefined ? path : "its start");
  } catch (cause) {
    if (CprgError.is(cause)) throw cause;
    throw new CprgError("failed_precondition", `Cannot read the token file ${path}`, { cause });
  } finally {
    if (inherited !== undefined) closeSync(Number(inherited));
  }
}

/** How the token was given. */
export interface GivenToken {
  readonly token: string;
  /** The flag whose value it is, without the dashes, and the one that names a file instead. */
  readonly flag: string;
  readonly fileFlag: string;
  /** The variable whose value it may be. */
  readonly variable: string;
}

/**
 * Executes the program anew, with the same process id, arguments and environment but for the token.
 *
 * @throws NativeError when that fails
 */
export function restartWithout(native: Native, given: GivenToken): never {
  const [theirs, ours] = native.pipe("read");
  writeSync(ours, given.token);
  closeSync(ours);
  const words = splitBlock(readFileSync("/proc/self/cmdline"));
  const variables = splitBlock(readFileSync("/proc/self/environ")).filter(
    (variable) => !variable.startsWith(`${given.variable}=`),
  );
  native.restart({
    args: joinBlock([
      ...withoutFlag(words, given.flag),
      `--${given.fileFlag}=/proc/self/fd/${theirs}`,
    ]),
    variables: joinBlock(variables),
    fds: [theirs],
  });
}

/** Words of a command line but for a flag and its value. */
export function withoutFlag(words: readonly string[], flag: string): readonly string[] {
  return words.filter(
    (word, index) =>
      word !== `--${flag}` && !word.startsWith(`--${flag}=`) && words[index - 1] !== `--${flag}`,
  );
}

/** Strings that end in NUL each, as bytes: they need be no UTF-8. */
function splitBlock(bytes: Uint8Array): readonly string[] {
  return Buffer.from(bytes).toString("latin1").split("\0").slice(0, -1);
}

function joinBlock(words: readonly string[]): Uint8Array {
  return Buffer.from(words.map((word) => `${word}\0`).join(""), "latin1");
}
