/** What `cprg tasks submit` sends: a runner, its input, and what the worker must be. */

import { readFile } from "node:fs/promises";
import type { Answer } from "./answers.ts";
import { usageError } from "./flags.ts";
import { splitPair } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";

/** Largest input that is read, in bytes: the server takes 1 MiB. */
const INPUT_BYTES_MAX = 1024 * 1024;

/** Flags of a submit. */
export interface SubmitFlags {
  readonly command: readonly string[];
  readonly collect: readonly string[];
  readonly prompt: string | undefined;
  readonly input: string | undefined;
  readonly runner: string | undefined;
  readonly label: readonly string[];
  readonly env: readonly string[];
  readonly repo: string | undefined;
  readonly ref: string | undefined;
}

/** The body of `POST /v1/tasks`. @throws CprgError USAGE when it is not said what to do, or twice */
export async function taskBody(flags: SubmitFlags, terminal: Terminal): Promise<Answer> {
  const { command, prompt, input, repo, ref } = flags;
  const ways = [command.length > 0, prompt !== undefined, input !== undefined].filter(Boolean);
  if (ways.length !== 1) {
    throw usageError(
      `Cannot submit: ${ways.length === 0 ? "nothing to do is given" : "more than one thing to do"}`,
      "-c COMMAND (also several), --prompt TEXT, or --input FILE",
    );
  }
  if (flags.collect.length > 0 && command.length === 0) {
    throw usageError("Cannot use --collect without -c");
  }
  return {
    runner: flags.runner ?? (prompt === undefined ? "shell" : "agent"),
    input: prompt ?? (input === undefined ? shellInput(flags) : await readInput(input, terminal)),
    ...pairs("labels", flags.label, "--label"),
    ...pairs("env", flags.env, "--env"),
    ...(repo === undefined ? {} : { repo_url: repo }),
    ...(ref === undefined ? {} : { ref }),
  };
}

function shellInput({ command, collect }: SubmitFlags): Answer {
  return { commands: command, ...(collect.length === 0 ? {} : { collect }) };
}

/** Of a file, or of standard input for `-`. */
async function readInput(path: string, terminal: Terminal): Promise<unknown> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const take = (part: Uint8Array): void => {
    bytes += part.length;
    if (bytes > INPUT_BYTES_MAX) throw usageError("Cannot read --input: above 1 MiB");
    parts.push(part);
  };
  if (path === "-") for await (const part of terminal.readStdin()) take(part);
  else take(await readFile(path));
  try {
    return JSON.parse(Buffer.concat(parts).toString("utf8"));
  } catch {
    throw usageError(`Cannot use --input "${path}": it is no JSON`);
  }
}

function pairs(name: string, given: readonly string[], flag: string): Answer {
  if (given.length === 0) return {};
  return { [name]: Object.fromEntries(given.map((pair) => splitPair(pair, flag))) };
}
