/**
 * A program without a sandbox: a session of its own, its streams on pipes or a terminal, and as much
 * of its descendants as can be found killed with it (`process-marks.ts`).
 */

import { closeSync, constants, openSync } from "node:fs";
import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type {
  Exec,
  ExecNotice,
  ExecSpec,
  OutputChannel,
  TerminalSize,
} from "../provider/contract.ts";
import { InputPipe } from "../sandbox/input.ts";
import { type Native, NativeError, type Terminal } from "../sandbox/native.ts";
import { NoticeQueue } from "../sandbox/notice-queue.ts";
import { OutputStream } from "../sandbox/output.ts";
import { terminalReader } from "../sandbox/terminal-reader.ts";
import { killMarked, MARK } from "./process-marks.ts";

/** What Ctrl-D types: the default of VEOF, termios(3). */
const END_OF_FILE = new Uint8Array([4]);
/**
 * Opening its own terminal makes it the controlling one of a session that has none (open(2),
 * O_NOCTTY). A spawn of the runtime cannot, so a shell does before it becomes the program.
 */
const TAKE_TERMINAL = 'exec <>/proc/self/fd/0 >&0 2>&0; exec "$0" "$@"';
const SECOND_MS = 1000;

/** How a program is started on this host. */
export interface PlainStart {
  readonly native: Native;
  /** Marks it and its descendants; no other exec has it. */
  readonly mark: string;
  /** Where it starts: a path that is resolved already. */
  readonly directory: string;
}

interface Streams {
  readonly input: InputPipe | null;
  readonly outputs: readonly { readonly channel: OutputChannel; readonly fd: number }[];
  readonly terminal: { fd: number } | null;
  /** Standard input, output, error of the program. */
  readonly theirs: readonly [number | null, number, number];
}

/**
 * Starts a program.
 *
 * @throws CprgError `not_found`, `permission_denied` when it never ran
 */
export function startPlainExec(spec: ExecSpec, start: PlainStart): PlainExec {
  const program = programOf(spec, start.directory);
  const streams = openStreams(start.native, spec);
  const isTerminal = streams.terminal !== null;
  const words = [program, ...spec.arguments];
  try {
    const child = Bun.spawn(isTerminal ? ["/bin/sh", "-c", TAKE_TERMINAL, ...words] : words, {
      cwd: start.directory,
      env: { ...spec.variables, [MARK]: start.mark },
      stdio: [...streams.theirs],
      detached: true,
    });
    return new PlainExec(child, { ...start, spec, streams });
  } catch (error) {
    streams.input?.abandon();
    for (const { fd } of streams.outputs) closeSync(fd);
    throw notStarted(program, (error as NodeJS.ErrnoException).code, error);
  } finally {
    for (const fd of new Set(streams.theirs)) if (fd !== null) closeSync(fd);
  }
}

interface PlainParts extends PlainStart {
  readonly spec: ExecSpec;
  readonly streams: Streams;
}

/** A program that runs on this host as this user. */
export class PlainExec implements Exec {
  readonly #child: Bun.Subprocess;
  readonly #parts: PlainParts;
  readonly #queue = new NoticeQueue();
  readonly #startedMs = performance.now();
  readonly #timers = new Set<Timer>();
  readonly #killed = new Set<number>();
  #reason: Reason | null = null;
  #isEnded = false;
  readonly outcome: Promise<Outcome>;

  constructor(child: Bun.Subprocess, parts: PlainParts) {
    this.#child = child;
    this.#parts = parts;
    const { stdin, limits } = parts.spec;
    if (stdin instanceof Uint8Array) {
      void this.write(stdin).catch(() => undefined);
      void this.closeInput().catch(() => undefined);
    }
    const seconds = limits?.wall_seconds;
    if (seconds !== undefined) this.#later(seconds * SECOND_MS, () => this.kill("wall_limit"));
    this.outcome = this.#run(parts.streams.outputs.map((output) => this.#read(output)));
  }

  get notices(): AsyncIterable<ExecNotice> {
    return this.#queue;
  }

  get pid(): number {
    return this.#child.pid;
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#input().write(bytes);
  }

  async closeInput(): Promise<void> {
    const input = this.#input();
    // The master stays open: closing it would hang up, not end the input.
    await (this.#parts.streams.terminal === null ? input.close() : input.write(END_OF_FILE));
  }

  resize(size: TerminalSize): void {
    const { terminal } = this.#parts.streams;
    if (terminal === null) {
      throw new CprgError("failed_precondition", "Cannot resize: the program has no terminal", {
        reason: "NO_TERMINAL",
      });
    }
    if (terminal.fd >= 0) this.#parts.native.resize(terminal.fd, size);
  }

  signal(name: string): void {
    if (!this.#isEnded) this.#child.kill(name as NodeJS.Signals);
  }

  kill(reason: Reason, { graceMs = 0 }: { readonly graceMs?: number } = {}): void {
    if (this.#isEnded) return;
    this.#reason ??= reason;
    if (graceMs > 0) {
      this.signal("SIGTERM");
      this.#later(graceMs, () => void this.#killAll());
    } else {
      void this.#killAll();
    }
  }

  async #run(outputs: readonly OutputStream[]): Promise<Outcome> {
    await this.#child.exited;
    this.#isEnded = true;
    for (const timer of this.#timers) timer.clear();
    const durationMs = performance.now() - this.#startedMs;
    await this.#killAll();
    this.#parts.streams.input?.abandon();
    for (const output of outputs) output.finishSoon();
    void Promise.allSettled(outputs.map(({ done }) => done)).then(() => this.#queue.end());
    const { signalCode, exitCode } = this.#child;
    const usage = this.#child.resourceUsage();
    return {
      exitCode: signalCode === null ? exitCode : null,
      signal: signalCode === null ? null : String(signalCode),
      reason: this.#reason ?? (signalCode === null ? "exit" : "signal"),
      limitsHit: [],
      violations: [],
      usage: {
        cpu_ms: usage === undefined ? 0 : Number(usage.cpuTime.total / 1000n),
        // Not `ru_maxrss`, which begins with what this process had when it forked.
        memory_peak_bytes: null,
        pids_peak: null,
      },
      durationMs,
      killed: this.#killed.size,
    };
  }

  async #killAll(): Promise<void> {
    const { mark } = this.#parts;
    const main = this.#isEnded ? null : this.#child.pid;
    for (const pid of await killMarked(`${mark}\0`, main)) {
      if (pid !== this.#child.pid) this.#killed.add(pid);
    }
  }

  #read({ channel, fd }: { readonly channel: OutputChannel; readonly fd: number }): OutputStream {
    const { native, streams } = this.#parts;
    const reader = Bun.file(fd).stream().getReader();
    return new OutputStream({
      channel,
      reader: streams.terminal === null ? reader : terminalReader(reader),
      onEnd: () => {
        // Its number may be another's at once.
        if (streams.terminal !== null) streams.terminal.fd = -1;
        closeSync(fd);
      },
      drain: () => native.drain(fd),
      limitBytes: Number.POSITIVE_INFINITY,
      queue: this.#queue,
      onTruncated: () => undefined,
    });
  }

  #input(): InputPipe {
    const { input } = this.#parts.streams;
    if (input !== null) return input;
    throw new CprgError("failed_precondition", "Cannot write to standard input: it is /dev/null", {
      reason: "INPUT_CLOSED",
    });
  }

  #later(delayMs: number, action: () => void): void {
    const timer = startTimer(delayMs, () => {
      this.#timers.delete(timer);
      action();
    });
    this.#timers.add(timer);
  }
}

/** A path as it is, a name by the PATH that the program gets. */
function programOf({ executable, variables }: ExecSpec, directory: string): string {
  if (executable.includes("/")) return posix.resolve(directory, executable);
  const found = Bun.which(executable, { PATH: variables["PATH"] ?? "", cwd: directory });
  if (found === null) throw notStarted(executable, "ENOENT", undefined);
  return found;
}

function openStreams(native: Native, spec: ExecSpec): Streams {
  if (spec.terminal !== undefined) {
    const { output, input, peer } = openTerminal(native, spec.terminal);
    return {
      input: new InputPipe(input),
      outputs: [{ channel: "stdout", fd: output }],
      terminal: { fd: output },
      theirs: [peer, peer, peer],
    };
  }
  // Pipes, because a shell whose input is a socket takes itself for one of rsh's.
  const stdin = spec.stdin === undefined ? null : native.pipe("write");
  const stdout = native.pipe("read");
  const stderr = native.pipe("read");
  return {
    input: stdin === null ? null : new InputPipe(stdin[1]),
    outputs: [
      { channel: "stdout", fd: stdout[0] },
      { channel: "stderr", fd: stderr[0] },
    ],
    terminal: null,
    theirs: [stdin?.[0] ?? null, stdout[1], stderr[1]],
  };
}

/** Of the host's devpts; where only root may open its `ptmx` (ptmxmode), through the device. */
function openTerminal(native: Native, size: TerminalSize): Terminal {
  let cause: unknown;
  for (const directory of ["/dev/pts", "/dev"]) {
    let fd = -1;
    try {
      fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
      return native.terminal(fd, size);
    } catch (error) {
      cause = error;
    } finally {
      if (fd >= 0) closeSync(fd);
    }
  }
  const why = cause instanceof NativeError ? cause.message : String(cause);
  throw new CprgError("unimplemented", `Cannot open a terminal on this host: ${why}`, {
    reason: "NO_TERMINAL",
    cause,
  });
}

function notStarted(program: string, code: string | undefined, cause: unknown): CprgError {
  const isForbidden = code === "EACCES";
  return new CprgError(
    isForbidden ? "permission_denied" : "not_found",
    `Cannot start ${JSON.stringify(program.slice(0, 256))}: ${code ?? "it failed"}`,
    { reason: isForbidden ? "PROGRAM_NOT_EXECUTABLE" : "PROGRAM_NOT_FOUND", cause },
  );
}
