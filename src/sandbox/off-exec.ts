/** A program without a sandbox: its own session, a wall clock, and capped output. */

import { CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { LimitHit, Outcome } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Exec, ExecNotice, ExecSpec, OutputChannel } from "../provider/contract.ts";
import { NoticeQueue } from "./notice-queue.ts";
import { OutputStream } from "./output.ts";

const KIB = 1024;

/** A program that runs as this user. */
export class OffExec implements Exec {
  readonly #process: Bun.PipedSubprocess;
  readonly #limits: Pick<Limits, "wall_seconds" | "output_kb">;
  readonly #queue = new NoticeQueue();
  readonly #hits: LimitHit[] = [];
  readonly #startedMs = performance.now();
  readonly #timers = new Set<Timer>();
  #reason: Reason | null = null;
  #hasInput: boolean;
  readonly outcome: Promise<Outcome>;

  constructor(spec: ExecSpec, limits: Pick<Limits, "wall_seconds" | "output_kb">) {
    this.#limits = limits;
    this.#hasInput = spec.stdin !== undefined;
    this.#process = start(spec);
    if (spec.stdin instanceof Uint8Array) {
      // A program need not read its input.
      void this.write(spec.stdin).catch(() => undefined);
      void this.closeInput();
    } else if (spec.stdin === undefined) {
      void this.#process.stdin.end();
    }
    this.#later(limits.wall_seconds * 1000, () => {
      this.#hit({
        limit: "wall_seconds",
        value: limits.wall_seconds,
        observed: (performance.now() - this.#startedMs) / 1000,
        sampled: false,
      });
      this.kill("wall_limit");
    });
    this.outcome = this.#run();
  }

  get notices(): AsyncIterable<ExecNotice> {
    return this.#queue;
  }

  get pid(): number {
    return this.#process.pid;
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (!this.#hasInput) {
      throw new CprgError("failed_precondition", "Cannot write to standard input: it is closed", {
        reason: "INPUT_CLOSED",
      });
    }
    this.#process.stdin.write(bytes);
    await this.#process.stdin.flush();
  }

  async closeInput(): Promise<void> {
    this.#hasInput = false;
    await this.#process.stdin.end();
  }

  resize(): void {
    throw new CprgError("failed_precondition", "Cannot resize: the program has no terminal", {
      reason: "NO_TERMINAL",
    });
  }

  signal(name: string): void {
    this.#process.kill(name as NodeJS.Signals);
  }

  kill(reason: Reason, options: { readonly graceMs?: number } = {}): void {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    this.#reason ??= reason;
    const graceMs = options.graceMs ?? 0;
    if (graceMs === 0) {
      this.#killGroup();
    } else {
      this.signal("SIGTERM");
      this.#later(graceMs, () => this.#killGroup());
    }
  }

  async #run(): Promise<Outcome> {
    const outputs = [
      this.#read("stdout", this.#process.stdout),
      this.#read("stderr", this.#process.stderr),
    ];
    await this.#process.exited;
    for (const timer of this.#timers) timer.clear();
    const durationMs = performance.now() - this.#startedMs;
    this.#killGroup();
    for (const output of outputs) output.finishSoon();
    void Promise.allSettled(outputs.map(({ done }) => done)).then(() => this.#queue.end());
    const { signalCode, exitCode } = this.#process;
    const usage = this.#process.resourceUsage();
    return {
      exitCode: signalCode === null ? exitCode : null,
      signal: signalCode === null ? null : String(signalCode),
      reason: this.#reason ?? (signalCode === null ? "exit" : "signal"),
      limitsHit: this.#hits,
      violations: [],
      usage: {
        cpu_ms: usage === undefined ? 0 : Number(usage.cpuTime.total / 1000n),
        memory_peak_bytes: usage?.maxRSS ?? null,
        pids_peak: null,
      },
      durationMs,
      killed: 0,
    };
  }

  #read(channel: OutputChannel, stream: ReadableStream<Uint8Array<ArrayBuffer>>): OutputStream {
    const { output_kb } = this.#limits;
    return new OutputStream({
      channel,
      reader: stream.getReader(),
      onEnd: () => undefined,
      limitBytes: output_kb * KIB,
      queue: this.#queue,
      onTruncated: () =>
        this.#hit({ limit: "output_kb", value: output_kb, observed: output_kb, sampled: false }),
    });
  }

  #hit(hit: LimitHit): void {
    if (this.#hits.some(({ limit }) => limit === hit.limit)) return;
    this.#hits.push(hit);
    this.#queue.push({ type: "limit", hit });
  }

  #later(delayMs: number, action: () => void): void {
    const timer = startTimer(delayMs, () => {
      this.#timers.delete(timer);
      action();
    });
    this.#timers.add(timer);
  }

  /** Its process group: what has left it is beyond reach here. */
  #killGroup(): void {
    try {
      process.kill(-this.#process.pid, "SIGKILL");
    } catch {
      // Nothing of the group is left.
    }
  }
}

function start(spec: ExecSpec): Bun.PipedSubprocess {
  try {
    return Bun.spawn([spec.executable, ...spec.arguments], {
      ...(spec.directory === undefined ? {} : { cwd: spec.directory }),
      env: { ...spec.variables },
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
      // Reads nothing ahead of us.
      lazy: true,
      detached: true,
    });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new CprgError(
      code === "EACCES" ? "permission_denied" : "not_found",
      `Cannot start ${JSON.stringify(spec.executable.slice(0, 256))}: ${code}`,
      { reason: code === "EACCES" ? "PROGRAM_NOT_EXECUTABLE" : "PROGRAM_NOT_FOUND", cause },
    );
  }
}
