/** A program on a worker: the items of its stream as notices, and its exit as an outcome. */

import type { Mux, StreamCall } from "../bridge/contract.ts";
import { EXEC_INPUT, EXEC_RESIZE, EXEC_SIGNAL, EXEC_START } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import type { Outcome } from "../core/outcome.ts";
import { REASONS, type Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Claim, ExecExit, ExecItem } from "../gen/messages.ts";
import type { Exec, ExecNotice, ExecSpec, TerminalSize } from "../provider/contract.ts";
import { NoticeQueue } from "../sandbox/notice-queue.ts";

/** Bytes of one input (PROTOCOL.md section 9, "Programs"). */
const INPUT_BYTES_MAX = 256 * 1024;

/** Where it runs. */
export interface RemotePlace {
  readonly mux: Mux;
  readonly claim: Claim;
}

/**
 * Starts a program in a claim.
 *
 * @throws CprgError when it never ran
 */
export async function startRemoteExec(place: RemotePlace, spec: ExecSpec): Promise<RemoteExec> {
  const { terminal, stdin, signal, limits } = spec;
  const execId = newId();
  const inline = stdin instanceof Uint8Array && stdin.length <= INPUT_BYTES_MAX ? stdin : undefined;
  const call = place.mux.stream(
    EXEC_START,
    {
      claim: place.claim,
      execId,
      argv: [spec.executable, ...spec.arguments],
      cwd: spec.directory ?? "",
      env: { ...spec.variables },
      timeoutMs: limits?.wall_seconds === undefined ? 0 : Math.ceil(limits.wall_seconds * 1000),
      ...(inline === undefined ? {} : { stdin: inline }),
      stdinOpen: terminal !== undefined || (stdin !== undefined && inline === undefined),
      ...(terminal === undefined ? {} : { pty: { cols: terminal.columns, rows: terminal.rows } }),
    },
    signal === undefined ? {} : { signal },
  );
  const items = call[Symbol.asyncIterator]();
  const { value: first } = await items.next();
  if (first?.started === undefined) {
    await items.return?.();
    throw new CprgError("failed_precondition", first?.exit?.message || "It never ran", {
      reason: "NOT_STARTED",
    });
  }
  const exec = new RemoteExec(place, { call, items, execId, pid: first.started.pid });
  if (stdin instanceof Uint8Array && inline === undefined) exec.feed(stdin);
  return exec;
}

interface Started {
  readonly call: StreamCall<ExecItem>;
  readonly items: AsyncIterator<ExecItem>;
  readonly execId: string;
  readonly pid: number;
}

/** A program that runs on a worker. */
export class RemoteExec implements Exec {
  readonly #place: RemotePlace;
  readonly #started: Started;
  readonly #queue = new NoticeQueue();
  readonly #startedMs = performance.now();
  #reason: Reason | null = null;
  #grace: Timer | null = null;
  #isEnded = false;
  readonly outcome: Promise<Outcome>;

  constructor(place: RemotePlace, started: Started) {
    this.#place = place;
    this.#started = started;
    this.outcome = this.#run();
  }

  get notices(): AsyncIterable<ExecNotice> {
    return this.#queue;
  }

  get pid(): number {
    return this.#started.pid;
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += INPUT_BYTES_MAX) {
      await this.#input(bytes.subarray(at, at + INPUT_BYTES_MAX), false);
    }
  }

  async closeInput(): Promise<void> {
    await this.#input(new Uint8Array(), true);
  }

  /** Writes all of it and closes; a program need not read its input. */
  feed(bytes: Uint8Array): void {
    void this.write(bytes)
      .then(() => this.closeInput())
      .catch(() => undefined);
  }

  resize({ columns, rows }: TerminalSize): void {
    const pty = { cols: columns, rows };
    void this.#place.mux.call(EXEC_RESIZE, { ...this.#which, pty }).catch(() => undefined);
  }

  signal(name: string): void {
    if (this.#isEnded) return;
    void this.#place.mux.call(EXEC_SIGNAL, { ...this.#which, signal: name }).catch(() => undefined);
  }

  kill(reason: Reason, { graceMs = 0 }: { readonly graceMs?: number } = {}): void {
    if (this.#isEnded) return;
    this.#reason ??= reason;
    this.#grace?.clear();
    if (graceMs <= 0) {
      this.#started.call.cancel(reason);
    } else {
      this.signal("SIGTERM");
      this.#grace = startTimer(graceMs, () => this.#started.call.cancel(reason));
    }
  }

  get #which(): { readonly claim: Claim; readonly execId: string } {
    return { claim: this.#place.claim, execId: this.#started.execId };
  }

  async #input(input: Uint8Array, close: boolean): Promise<void> {
    await this.#place.mux.call(EXEC_INPUT, { ...this.#which, input, close });
  }

  async #run(): Promise<Outcome> {
    let exit: ExecExit | undefined;
    let failure: CprgError | undefined;
    try {
      exit = await this.#read();
    } catch (error) {
      failure = CprgError.from(error);
    }
    this.#isEnded = true;
    this.#grace?.clear();
    this.#queue.end();
    return exit === undefined ? this.#lost(failure) : outcomeOf(exit, this.#reason);
  }

  async #read(): Promise<ExecExit | undefined> {
    let exit: ExecExit | undefined;
    const { items } = this.#started;
    for (let next = await items.next(); !next.done; next = await items.next()) {
      const { stdout, stderr } = next.value;
      exit = next.value.exit ?? exit;
      if (stdout !== undefined) await this.#queue.output("stdout", Uint8Array.from(stdout));
      if (stderr !== undefined) await this.#queue.output("stderr", Uint8Array.from(stderr));
    }
    return exit;
  }

  /** Cancelled, which proves that nothing of it runs; or its stream is gone. */
  #lost(failure: CprgError | undefined): Outcome {
    const isKilled = failure?.code === "canceled" && this.#reason !== null;
    return {
      exitCode: null,
      signal: isKilled ? "SIGKILL" : null,
      reason: isKilled && this.#reason !== null ? this.#reason : "worker_lost",
      limitsHit: [],
      violations: [],
      usage: null,
      durationMs: performance.now() - this.#startedMs,
      killed: 0,
      ...(failure === undefined || isKilled ? {} : { error: { message: failure.message } }),
    };
  }
}

function outcomeOf(exit: ExecExit, asked: Reason | null): Outcome {
  const reason = REASONS.find((known) => known === exit.reason) ?? "exit";
  return {
    exitCode: exit.exitCode ?? null,
    signal: exit.signal === "" ? null : exit.signal,
    reason: reason === "signal" && asked !== null ? asked : reason,
    limitsHit: [],
    violations: [],
    usage: {
      cpu_ms: exit.cpuMs,
      memory_peak_bytes: exit.memoryPeakBytes ?? null,
      pids_peak: null,
    },
    durationMs: exit.durationMs,
    killed: exit.killed,
    ...(exit.message === "" ? {} : { error: { message: exit.message } }),
  };
}
