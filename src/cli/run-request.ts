/**
 * What `cprg run` is asked to run, gathered from flags, files and standard input, before anything
 * decides where it runs. The rules of jobs are not applied here: the side that runs it does that.
 */

import { open, stat } from "node:fs/promises";
import { basename } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { JobFile } from "../core/job.ts";
import { CODE_BYTES_MAX } from "../jobs/spec.ts";
import { usageError } from "./flags.ts";
import { detectLanguage } from "./run-language.ts";
import { parseRunLimits } from "./run-limits.ts";
import { splitPair } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";

/** Largest standard input, and largest sum of files, in bytes. */
export const INPUT_BYTES_MAX = 64 * 1024 * 1024;

/** Flags that say what to run. */
export interface RunRequestFlags {
  readonly code: string | undefined;
  readonly lang: string | undefined;
  readonly stdin: string | undefined;
  readonly file: readonly string[];
  readonly env: readonly string[];
  readonly limit: readonly string[];
  readonly timeout: string | undefined;
  readonly mem: string | undefined;
  readonly place: readonly string[];
}

/** What to run. */
export interface RunRequest {
  readonly language: string;
  readonly code: string;
  readonly args: readonly string[];
  /** Null: /dev/null. */
  readonly stdin: Uint8Array | null;
  readonly files: readonly JobFile[];
  readonly env: Readonly<Record<string, string>>;
  /** As asked, by name; defaults and ceilings are applied where it runs. */
  readonly limits: Readonly<Record<string, number>>;
  /** `--place`, as it was given. */
  readonly place: readonly string[];
}

/**
 * Gathers a request.
 *
 * @param args the script, if any, and what follows `--`
 * @throws CprgError for a contradiction, a missing file, or input beyond its bound
 */
export async function gatherRequest(
  flags: RunRequestFlags,
  args: { readonly script: string | undefined; readonly rest: readonly string[] },
  terminal: Terminal,
): Promise<RunRequest> {
  if (args.script !== undefined && flags.code !== undefined) {
    throw usageError("Cannot run both a script and --code: give one of them");
  }
  const limits = parseRunLimits(flags);
  const env = parseEnv(flags.env);
  const source = await readSource(flags.code, args.script, terminal);
  if (source.isFromStdin && flags.stdin === "-") {
    throw usageError("Cannot read both the program and its input from standard input");
  }
  return {
    language: detectLanguage({ asked: flags.lang, path: source.path, code: source.code }),
    code: source.code,
    args: args.rest,
    stdin: await readInput(flags.stdin, terminal),
    files: await readFiles(flags.file),
    env,
    limits,
    place: flags.place,
  };
}

interface Source {
  readonly code: string;
  /** Where it came from, for its language; null for `-c` and a pipe. */
  readonly path: string | null;
  readonly isFromStdin: boolean;
}

async function readSource(
  code: string | undefined,
  script: string | undefined,
  terminal: Terminal,
): Promise<Source> {
  if (code !== undefined) return { code, path: null, isFromStdin: false };
  if (script !== undefined && script !== "-") {
    const { bytes } = await readBounded(script, CODE_BYTES_MAX);
    return { code: decodeSource(bytes, script), path: script, isFromStdin: false };
  }
  if (terminal.isStdinTerminal) {
    throw usageError(
      "Cannot run: no program was given",
      "Name a script, pass -c CODE, or pipe a program in",
    );
  }
  const bytes = await collect(terminal.readStdin(), CODE_BYTES_MAX, "standard input");
  return { code: decodeSource(bytes, "standard input"), path: null, isFromStdin: true };
}

function decodeSource(bytes: Uint8Array, name: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw noText(name, error);
  }
}

function noText(name: string, cause: unknown): CprgError {
  return new CprgError("invalid_argument", `Cannot run "${name}": it is no UTF-8 text`, { cause });
}

async function readInput(path: string | undefined, terminal: Terminal): Promise<Uint8Array | null> {
  if (path === undefined) return null;
  if (path === "-") return await collect(terminal.readStdin(), INPUT_BYTES_MAX, "standard input");
  return (await readBounded(path, INPUT_BYTES_MAX)).bytes;
}

async function readFiles(pairs: readonly string[]): Promise<JobFile[]> {
  const files: JobFile[] = [];
  let left = INPUT_BYTES_MAX;
  for (const pair of pairs) {
    const cut = pair.lastIndexOf("=");
    const source = cut < 0 ? pair : pair.slice(0, cut);
    const path = cut < 0 ? basename(pair) : pair.slice(cut + 1);
    const { bytes, mode } = await readBounded(source, left);
    left -= bytes.length;
    const isExecutable = (mode & 0o100) !== 0;
    files.push({
      path,
      base64: Buffer.from(bytes).toString("base64"),
      mode: isExecutable ? 0o755 : 0o644,
    });
  }
  return files;
}

function parseEnv(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(pairs.map((pair) => splitPair(pair, "--env")));
}

async function readBounded(path: string, bytesMax: number) {
  try {
    const { mode } = await stat(path);
    const handle = await open(path);
    try {
      const stream = handle.readableWebStream() as AsyncIterable<Uint8Array>;
      return { mode, bytes: await collect(stream, bytesMax, path) };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (CprgError.is(error)) throw error;
    throw unreadable(path, error);
  }
}

function unreadable(path: string, cause: unknown): CprgError {
  const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
  const words: Record<string, string> = {
    ENOENT: "no such file",
    EISDIR: "it is a directory",
    EACCES: "permission denied",
  };
  return new CprgError("failed_precondition", `Cannot read "${path}": ${words[code] ?? code}`, {
    reason: "UNREADABLE_FILE",
    cause,
  });
}

async function collect(
  source: AsyncIterable<Uint8Array>,
  bytesMax: number,
  name: string,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of source) {
    size += chunk.length;
    if (size > bytesMax) {
      throw new CprgError("out_of_range", `Cannot use "${name}": larger than ${bytesMax} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
