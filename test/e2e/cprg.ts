// The compiled binary as a child process, with directories of its own that go when the test ends.

import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** The binary under test: CPRG_BIN, or dist/cprg. */
export function cprgPath(): string {
  const path = resolve(process.env["CPRG_BIN"] ?? join(import.meta.dir, "../../dist/cprg"));
  if (!existsSync(path)) throw new Error(`${path} is not built: run "make build", or set CPRG_BIN`);
  return path;
}

/** Directories and environment of one test. */
export interface Home extends Disposable {
  readonly path: string;
  readonly dataDir: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Makes them beneath the temporary directory. */
export function makeHome(): Home {
  const path = mkdtempSync(join(tmpdir(), "cprg-e2e-"));
  // Every sandbox's init passes through the run directory's parents as another user.
  chmodSync(path, 0o711);
  const dataDir = join(path, "data");
  const runDir = join(path, "run");
  mkdirSync(runDir, { mode: 0o711 });
  return {
    path,
    dataDir,
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: path,
      CPRG_DATA_DIR: dataDir,
      CPRG_RUN_DIR: runDir,
      CPRG_PYTHON: "/usr/bin/python3",
    },
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  };
}

/** What a call is given beside its words. */
export interface CallOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array;
  readonly cwd?: string;
  /** A command that runs the binary and its words. */
  readonly shell?: readonly string[];
}

/** How a call ended. */
export interface Ended {
  /** Exit code, or 128 + n. */
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A call that runs. */
export type Running = Bun.Subprocess<"pipe", "pipe", "pipe">;

/** Starts the binary. */
export function start(words: readonly string[], options: CallOptions = {}): Running {
  return Bun.spawn([...(options.shell ?? []), cprgPath(), ...words], {
    env: { ...options.env },
    cwd: options.cwd ?? "/",
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
}

/** Runs the binary to its end. */
export async function call(words: readonly string[], options: CallOptions = {}): Promise<Ended> {
  const child = start(words, options);
  if (options.stdin !== undefined) child.stdin.write(options.stdin);
  await child.stdin.end();
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { code: await child.exited, out, err };
}

/** A reader of a stream that waits for text. */
export interface TextReader {
  /** Resolves with everything so far once it matches. @throws when the stream ends first */
  until(pattern: RegExp): Promise<string>;
  /** Everything, at the end of the stream. */
  rest(): Promise<string>;
}

/** Reads a stream as it comes. */
export function readText(stream: ReadableStream<Uint8Array>): TextReader {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  const more = async (): Promise<boolean> => {
    const { value, done } = await reader.read();
    if (!done) text += decoder.decode(value, { stream: true });
    return !done;
  };
  return {
    async until(pattern) {
      while (!pattern.test(text)) {
        if (!(await more())) throw new Error(`the stream ended before ${pattern}: ${text}`);
      }
      return text;
    },
    async rest() {
      while (await more()) {}
      return text;
    },
  };
}
