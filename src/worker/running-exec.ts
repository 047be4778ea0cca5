/** One exec of a claim: from what its program reports to the items of its log, and its input. */

import { CprgError, invalid } from "../core/errors.ts";
import { GarbageCount } from "../core/garbage.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import type { ExecExit } from "../gen/messages.ts";
import type { Exec, OutputChannel, TerminalSize } from "../provider/contract.ts";
import { ITEM_OUTPUT_BYTES_MAX, ItemLog } from "./item-log.ts";
import { Tail } from "./tail.ts";

/** Signals that a caller may send (PROTOCOL.md section 9, "Programs"). */
export const SIGNALS: readonly string[] = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGTERM",
  "SIGKILL",
  "SIGSTOP",
  "SIGCONT",
  "SIGWINCH",
];

/**
 * Of the output of all programs: what was read from pipes and sent on is freed late otherwise. It is
 * waited for, as a worker has little that lives, so that a collection is a matter of milliseconds.
 */
const garbage = new GarbageCount({ everyBytes: 8 * 1024 * 1024, isAwaited: true });

/** How it was asked for. */
export interface RunningExecOptions {
  readonly id: string;
  /** Above 0: output is kept back, and only so many last bytes of each stream are given. */
  readonly retainBytes: number;
  /** First input; the end of input follows, unless it stays open. */
  readonly stdin: Uint8Array;
  readonly isInputOpen: boolean;
}

/** A program that was started, until its claim ends. */
export class RunningExec {
  readonly id: string;
  readonly log = new ItemLog();
  readonly #exec: Exec;
  readonly #tails: Readonly<Record<OutputChannel, Tail>> | null;
  readonly #outputBytes: Record<OutputChannel, number> = { stdout: 0, stderr: 0 };
  #takenBytes = 0;
  #isInputOpen = true;
  #lastInput: Promise<void> = Promise.resolve();
  /** Resolves when every process of it is gone; its exit may still wait for output to be taken. */
  readonly gone: Promise<Outcome>;

  constructor(exec: Exec, { id, retainBytes, stdin, isInputOpen }: RunningExecOptions) {
    this.id = id;
    this.#exec = exec;
    this.#tails =
      retainBytes > 0 ? { stdout: new Tail(retainBytes), stderr: new Tail(retainBytes) } : null;
    this.gone = exec.outcome;
    this.log.started({ execId: id, pid: exec.pid });
    // A program need not read its input.
    void this.#input(stdin, !isInputOpen).catch(() => undefined);
    void this.#run();
  }

  /** The pid that the program itself sees. */
  get pid(): number {
    return this.#exec.pid;
  }

  /**
   * Writes to standard input or the terminal, after what earlier calls wrote.
   *
   * @param offset where the bytes begin in all input; those that were taken already are skipped
   * @returns bytes taken since the start
   * @throws CprgError `failed_precondition` when the input is closed, `out_of_range`
   */
  async input(
    bytes: Uint8Array,
    { close, offset, signal }: { close: boolean; offset: number | undefined; signal: AbortSignal },
  ): Promise<number> {
    const written = this.#lastInput.then(() => {
      if (signal.aborted) throw signal.reason;
      return this.#inputAt(bytes, { close, offset });
    });
    this.#lastInput = written.catch(() => undefined);
    await Promise.race([written, rejectOn(signal)]);
    return this.#takenBytes;
  }

  /** @throws CprgError `failed_precondition` without a terminal */
  resize(size: TerminalSize): void {
    this.#exec.resize(size);
  }

  /** @throws CprgError `invalid_argument` for a signal that is none of {@link SIGNALS} */
  signal(name: string): void {
    if (!SIGNALS.includes(name)) {
      throw invalid("signal", `Cannot send ${JSON.stringify(name.slice(0, 64))}: no such signal`);
    }
    if (!this.log.isEnded) this.#exec.signal(name);
  }

  /** Kills all of it; resolves when nothing of it runs. Whoever follows it still gets its exit. */
  async end(reason: Reason): Promise<void> {
    this.#exec.kill(reason);
    this.log.close();
    await this.gone;
  }

  /** Kills all of it and forgets its output; resolves when nothing of it runs. */
  async kill(reason: Reason): Promise<void> {
    this.#exec.kill(reason);
    this.log.discard();
    await this.gone;
  }

  async #inputAt(
    bytes: Uint8Array,
    { close, offset }: { close: boolean; offset: number | undefined },
  ): Promise<void> {
    const at = offset ?? this.#takenBytes;
    if (at > this.#takenBytes) {
      throw new CprgError("out_of_range", `input up to ${this.#takenBytes} was taken, not ${at}`);
    }
    const rest = bytes.subarray(Math.min(bytes.length, this.#takenBytes - at));
    // What was taken and closed before is no error the second time.
    if (!this.#isInputOpen && offset !== undefined && rest.length === 0 && close) return;
    await this.#input(rest, close);
  }

  async #input(bytes: Uint8Array, close: boolean): Promise<void> {
    if (!this.#isInputOpen || this.log.isEnded) {
      throw new CprgError("failed_precondition", "Cannot write to standard input: it is closed", {
        reason: "INPUT_CLOSED",
      });
    }
    if (close) this.#isInputOpen = false;
    if (bytes.length > 0) {
      await this.#exec.write(bytes);
      this.#takenBytes += bytes.length;
    }
    if (close) await this.#exec.closeInput();
  }

  async #run(): Promise<void> {
    for await (const notice of this.#exec.notices) {
      if (notice.type !== "output") continue;
      const { channel, bytes } = notice;
      this.#outputBytes[channel] += bytes.length;
      garbage.add(bytes.length);
      if (this.#tails === null) await this.log.output(channel, bytes);
      else this.#tails[channel].add(bytes);
    }
    const outcome = await this.gone;
    for (const channel of ["stdout", "stderr"] as const) {
      const tail = this.#tails?.[channel].take() ?? new Uint8Array();
      for (let at = 0; at < tail.length; at += ITEM_OUTPUT_BYTES_MAX) {
        await this.log.output(channel, tail.subarray(at, at + ITEM_OUTPUT_BYTES_MAX));
      }
    }
    this.log.exit(exitOf(outcome, this.#outputBytes));
  }
}

/** The exit of a program that never ran. */
export function exitOfFailure(error: CprgError): ExecExit {
  return {
    signal: "",
    reason: error.reason === "DISK_FULL" ? "disk_full" : "setup_failed",
    durationMs: 0,
    stdoutBytes: 0,
    stderrBytes: 0,
    cpuMs: 0,
    killed: 0,
    message: error.message,
  };
}

function exitOf(outcome: Outcome, bytes: Readonly<Record<OutputChannel, number>>): ExecExit {
  const { exitCode, signal, usage } = outcome;
  return {
    ...(exitCode === null ? {} : { exitCode }),
    signal: signal ?? "",
    reason: outcome.reason,
    durationMs: Math.round(outcome.durationMs),
    stdoutBytes: bytes.stdout,
    stderrBytes: bytes.stderr,
    cpuMs: Math.round(usage?.cpu_ms ?? 0),
    ...(usage?.memory_peak_bytes == null ? {} : { memoryPeakBytes: usage.memory_peak_bytes }),
    killed: outcome.killed,
    message: outcome.error?.message ?? "",
  };
}

function rejectOn(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
