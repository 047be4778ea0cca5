/**
 * The process's surroundings as a value: streams, environment, working directory, signals. Commands
 * reach the outside only through it, so that tests can hand them another.
 */

import { readFileSync, write } from "node:fs";
import { constants } from "node:os";
import { isatty } from "node:tty";
import { openRawTerminal, type RawTerminal } from "./raw-terminal.ts";

/** The reader of our output has gone away (EPIPE); ends the command quietly with 141. */
export class ClosedOutput extends Error {
  constructor() {
    super("standard output was closed by its reader");
  }
}
Object.defineProperty(ClosedOutput.prototype, "name", { value: "ClosedOutput" });

/** A stream that takes bytes in order. */
export interface ByteSink {
  readonly isTerminal: boolean;
  /**
   * Writes all of it; resolves when the kernel took the last byte.
   *
   * @throws ClosedOutput when nobody can read it any more
   */
  write(content: Uint8Array | string): Promise<void>;
  /** Resolves when everything that was written so far is out or has failed. */
  drain(): Promise<void>;
}

/** Signals that a command may take over. */
export type TerminalSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

/** Surroundings of one command. */
export interface Terminal {
  readonly stdout: ByteSink;
  readonly stderr: ByteSink;
  /** Standard error for records of the log: what nobody reads of them must not keep the process. */
  readonly log: ByteSink;
  readonly isStdinTerminal: boolean;
  /** The user's terminal for a program's own use, or null where input and output are not one. */
  raw(): RawTerminal | null;
  /** Standard input, in chunks. */
  readStdin(): AsyncIterable<Uint8Array>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The working directory; `.` where it was removed, so that only what is in it is missing. */
  readonly directory: string;
  /** Effective user id. */
  readonly uid: number;
  /**
   * Calls back on a signal instead of dying of it, until the returned function is called. A signal
   * that was ignored when the program started (nohup(1), a shell's background job) stays ignored.
   */
  onSignal(name: TerminalSignal, listener: () => void): () => void;
}

/** How long to wait when a shared descriptor was made non-blocking and is full. */
const RETRY_MS = 5;

/**
 * A sink over a descriptor. One write is under way at a time, in the thread pool, so that a slow
 * reader holds back the caller and not the event loop; `process.stdout` would buffer without bound
 * and lose what is unwritten at exit.
 */
export function descriptorSink(fd: number): ByteSink {
  let last: Promise<void> = Promise.resolve();
  return {
    isTerminal: isatty(fd),
    write(content) {
      const bytes = typeof content === "string" ? Buffer.from(content) : content;
      const next = last.catch(() => undefined).then(async () => await writeAll(fd, bytes));
      last = next;
      // The caller sees the failure; this keeps it from counting as unhandled twice.
      next.catch(() => undefined);
      return next;
    },
    drain: async () => await last.catch(() => undefined),
  };
}

async function writeAll(fd: number, bytes: Uint8Array): Promise<void> {
  let left = bytes;
  while (left.length > 0) left = left.subarray(await writeSome(fd, left));
}

function writeSome(fd: number, bytes: Uint8Array): Promise<number> {
  return new Promise((resolve, reject) => {
    write(fd, bytes, 0, bytes.length, null, (error, written) => {
      if (error === null) resolve(written);
      else if (error.code === "EAGAIN") setTimeout(() => resolve(0), RETRY_MS);
      else reject(error.code === "EPIPE" ? new ClosedOutput() : error);
    });
  });
}

/** Of open(2), as /proc/self/fdinfo prints flags. */
const O_CLOEXEC = 0o2000000;

/**
 * Whether a standard descriptor was closed when this process started (`>&-`). The runtime opens
 * /dev/null in its place, close-on-exec, which no descriptor is that came through an exec.
 */
export function wasClosed(fd: 0 | 1 | 2): boolean {
  try {
    const flags = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1];
    return (Number.parseInt(flags ?? "0", 8) & O_CLOEXEC) !== 0;
  } catch {
    // No Linux: nothing can be said, so the descriptor counts as open.
    return false;
  }
}

/** A sink that nobody has ever read. */
export function closedSink(): ByteSink {
  return {
    isTerminal: false,
    write: async () => await Promise.reject(new ClosedOutput()),
    drain: async () => undefined,
  };
}

/** The surroundings of this process. */
export function processTerminal(): Terminal {
  return {
    stdout: wasClosed(1) ? closedSink() : descriptorSink(1),
    stderr: descriptorSink(2),
    log: descriptorSink(2),
    isStdinTerminal: isatty(0),
    raw: () => (isatty(0) && isatty(1) ? openRawTerminal() : null),
    readStdin: () => Bun.stdin.stream(),
    env: process.env,
    directory: workingDirectory(),
    uid: process.geteuid?.() ?? -1,
    onSignal(name, listener) {
      if (isIgnored(name)) return () => undefined;
      process.on(name, listener);
      return () => process.off(name, listener);
    },
  };
}

function workingDirectory(): string {
  try {
    return process.cwd();
  } catch {
    // getcwd(3) finds no name for it.
    return ".";
  }
}

/** Whether this process ignores a signal: bit n - 1 of SigIgn (proc_pid_status(5)). */
function isIgnored(name: TerminalSignal): boolean {
  let status: string;
  try {
    status = readFileSync("/proc/self/status", "utf8");
  } catch {
    // No Linux: nothing can be said, so signals are taken.
    return false;
  }
  const mask = BigInt(`0x${/^SigIgn:\s+([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
  return (mask & (1n << BigInt(constants.signals[name] - 1))) !== 0n;
}
