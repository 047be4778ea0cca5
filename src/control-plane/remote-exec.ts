/** A program on a worker: the items of its stream as notices, and its exit as an outcome. */

import { EXEC_INPUT, EXEC_RESIZE, EXEC_SIGNAL } from "../bridge/methods.ts";
import { abortError } from "../bridge/outgoing-call.ts";
import { EXEC_SIGNALS } from "../bridge/signals.ts";
import { CprgError, invalid } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import type { LimitName, Limits } from "../core/limits.ts";
import type { LimitHit, Outcome } from "../core/outcome.ts";
import { REASONS, type Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Claim, ExecExit } from "../gen/messages.ts";
import type {
  Exec,
  ExecNotice,
  ExecSpec,
  OutputChannel,
  TerminalSize,
} from "../provider/contract.ts";
import { NoticeQueue } from "../sandbox/notice-queue.ts";
import type { ClaimLink } from "./claim-link.ts";
import { ExecItems } from "./exec-items.ts";

/** Bytes of one input (PROTOCOL.md section 9, "Programs"). */
const INPUT_BYTES_MAX = 256 * 1024;

/**
 * Starts a program in a claim.
 *
 * @throws CprgError when it never ran
 */
export async function startRemoteExec(link: ClaimLink, spec: ExecSpec): Promise<RemoteExec> {
  const { terminal, stdin, signal, limits } = spec;
  const execId = newId();
  const inline = stdin instanceof Uint8Array && stdin.length <= INPUT_BYTES_MAX ? stdin : undefined;
  const items = new ExecItems(link, {
    execId,
    argv: [spec.executable, ...spec.arguments],
    cwd: spec.directory ?? "",
    env: { ...spec.variables },
    timeoutMs: millisecondsOf(limits?.wall_seconds),
    cpuLimitMs: link.hasLimits ? millisecondsOf(limits?.cpu_seconds) : 0,
    ...(inline === undefined ? {} : { stdin: inline }),
    stdinOpen: terminal !== undefined || (stdin !== undefined && inline === undefined),
    ...(terminal === undefined ? {} : { pty: { cols: terminal.columns, rows: terminal.rows } }),
  });
  const first = await firstItem(items, signal);
  if (first?.started === undefined) {
    items.abandon("it is of no use");
    throw new CprgError("failed_precondition", first?.exit?.message || "It never ran", {
      reason: "NOT_STARTED",
    });
  }
  const exec = new RemoteExec(link, { items, execId, pid: first.started.pid, spec });
  if (stdin instanceof Uint8Array && inline === undefined) exec.feed(stdin);
  return exec;
}

/** The first item, unless the start is given up: then the exec is killed, now or when it can be. */
async function firstItem(items: ExecItems, signal: AbortSignal | undefined) {
  if (signal === undefined) return await items.next();
  let giveUp = (): void => undefined;
  const first = items.next();
  // `Promise.withResolvers` needs a newer Node than the one that is supported.
  const given = new Promise<never>((_, reject) => {
    giveUp = () => reject(abortError(signal.reason));
    signal.addEventListener("abort", giveUp);
    if (signal.aborted) giveUp();
  });
  try {
    return await Promise.race([first, given]);
  } catch (error) {
    // Whatever comes is taken in turn, so that the cancel is seen to its end.
    if (signal.aborted) {
      items.cancel("the start was given up");
      void first.then(() => items.abandon("the start was given up")).catch(() => undefined);
    }
    throw error;
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

interface Started {
  readonly items: ExecItems;
  readonly execId: string;
  readonly pid: number;
  readonly spec: Pick<ExecSpec, "limits" | "terminal">;
}

/** A program that runs on a worker. */
export class RemoteExec implements Exec {
  readonly #link: ClaimLink;
  readonly #started: Started;
  readonly #queue = new NoticeQueue();
  readonly #startedMs = performance.now();
  #reason: Reason | null = null;
  #grace: Timer | null = null;
  #isEnded = false;
  #inputBytes = 0;
  #lastInput: Promise<void> = Promise.resolve();
  readonly #output: BoundedOutput;
  readonly outcome: Promise<Outcome>;

  constructor(link: ClaimLink, started: Started) {
    this.#link = link;
    this.#started = started;
    const { output_kb: most = Number.POSITIVE_INFINITY } = started.spec.limits ?? {};
    this.#output = new BoundedOutput(this.#queue, most);
    this.outcome = this.#run();
  }

  get notices(): AsyncIterable<ExecNotice> {
    return this.#queue;
  }

  get pid(): number {
    return this.#started.pid;
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#inTurn(async () => {
      for (let at = 0; at < bytes.length; at += INPUT_BYTES_MAX) {
        await this.#input(bytes.subarray(at, at + INPUT_BYTES_MAX), false);
      }
    });
  }

  async closeInput(): Promise<void> {
    await this.#inTurn(() => this.#input(new Uint8Array(), true));
  }

  /** Writes all of it and closes; a program need not read its input. */
  feed(bytes: Uint8Array): void {
    void this.write(bytes)
      .then(() => this.closeInput())
      .catch(() => undefined);
  }

  resize({ columns, rows }: TerminalSize): void {
    if (this.#started.spec.terminal === undefined) {
      throw new CprgError("failed_precondition", "Cannot resize: the program has no terminal", {
        reason: "NO_TERMINAL",
      });
    }
    const pty = { cols: columns, rows };
    void this.#link.call(EXEC_RESIZE, { ...this.#which, pty }).catch(() => undefined);
  }

  /** @throws CprgError `invalid_argument` for a signal that workers take none of */
  signal(name: string): void {
    if (!EXEC_SIGNALS.includes(name)) {
      const shown = JSON.stringify(name.slice(0, 64));
      throw invalid("signal", `Cannot send ${shown}: one of ${EXEC_SIGNALS.join(", ")}`);
    }
    if (this.#isEnded) return;
    void this.#link.call(EXEC_SIGNAL, { ...this.#which, signal: name }).catch(() => undefined);
  }

  kill(reason: Reason, { graceMs = 0 }: { readonly graceMs?: number } = {}): void {
    if (this.#isEnded) return;
    this.#reason ??= reason;
    this.#grace?.clear();
    if (graceMs <= 0) {
      this.#started.items.cancel(reason);
    } else {
      this.signal("SIGTERM");
      this.#grace = startTimer(graceMs, () => this.#started.items.cancel(reason));
    }
  }

  get #which(): { readonly claim: Claim; readonly execId: string } {
    return { claim: this.#link.claim, execId: this.#started.execId };
  }

  /** One after another: where input belongs is said by the bytes before it. */
  #inTurn(write: () => Promise<void>): Promise<void> {
    const written = this.#lastInput.then(write);
    this.#lastInput = written.catch(() => undefined);
    return written;
  }

  /** Its place in all input is said, so that it is taken once, however often it is sent. */
  async #input(input: Uint8Array, close: boolean): Promise<void> {
    const offset = this.#inputBytes;
    await this.#link.callUntilAnswered(EXEC_INPUT, { ...this.#which, input, close, offset });
    this.#inputBytes += input.length;
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
    const outcome = exit === undefined ? this.#lost(failure) : outcomeOf(exit, this.#reason);
    const hit = limitHit(outcome, { ...this.#link.limits, ...this.#started.spec.limits });
    if (hit !== null) this.#queue.push({ type: "limit", hit });
    this.#queue.end();
    const limitsHit = [...this.#output.hits, ...(hit === null ? [] : [hit])];
    return { ...outcome, limitsHit };
  }

  async #read(): Promise<ExecExit | undefined> {
    let exit: ExecExit | undefined;
    const { items } = this.#started;
    for (let item = await items.next(); item !== undefined; item = await items.next()) {
      const { stdout, stderr } = item;
      exit = item.exit ?? exit;
      if (stdout !== undefined) await this.#output.add("stdout", Uint8Array.from(stdout));
      if (stderr !== undefined) await this.#output.add("stderr", Uint8Array.from(stderr));
    }
    return exit;
  }

  /** Cancelled, which proves that nothing of it runs; or its stream is gone. */
  #lost(failure: CprgError | undefined): Outcome {
    // After a cut the worker may answer a kill that it has carried out with what it no longer keeps.
    const isOver = failure?.code === "canceled" || failure?.code === "data_loss";
    const isKilled = isOver && this.#reason !== null;
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
    // One that was asked to end and did so by itself, within its grace, ended for that all the same.
    reason: asked !== null && (reason === "signal" || reason === "exit") ? asked : reason,
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

/** Output as far as it is to be kept: a worker sends all of it. */
class BoundedOutput {
  readonly #queue: NoticeQueue;
  readonly #outputKb: number;
  readonly #bytes: Record<OutputChannel, number> = { stdout: 0, stderr: 0 };
  readonly hits: LimitHit[] = [];

  constructor(queue: NoticeQueue, outputKb: number) {
    this.#queue = queue;
    this.#outputKb = outputKb;
  }

  async add(channel: OutputChannel, bytes: Uint8Array): Promise<void> {
    const limitBytes = this.#outputKb * 1024;
    const before = this.#bytes[channel];
    this.#bytes[channel] += bytes.length;
    const kept = bytes.subarray(0, Math.max(0, limitBytes - before));
    if (kept.length > 0) await this.#queue.output(channel, kept);
    if (before > limitBytes || this.#bytes[channel] <= limitBytes) return;
    const hit: LimitHit = {
      limit: "output_kb",
      value: this.#outputKb,
      observed: this.#outputKb,
      sampled: false,
    };
    this.#queue.push({ type: "truncated", channel, limitBytes });
    if (this.hits.length > 0) return;
    this.hits.push(hit);
    this.#queue.push({ type: "limit", hit });
  }
}

/** Limits that end a program, by the reason that says so. */
const ENDING_LIMITS: Readonly<Partial<Record<Reason, LimitName>>> = {
  wall_limit: "wall_seconds",
  cpu_limit: "cpu_seconds",
  oom: "mem_mb",
};

/** The limit that ended it, with what its worker counted. */
function limitHit(
  { reason, durationMs, usage }: Outcome,
  limits: Partial<Limits>,
): LimitHit | null {
  const limit = ENDING_LIMITS[reason];
  const value = limit === undefined ? undefined : limits[limit];
  if (limit === undefined || value === undefined) return null;
  const observed = {
    wall_seconds: durationMs / 1000,
    cpu_seconds: (usage?.cpu_ms ?? 0) / 1000,
    mem_mb: (usage?.memory_peak_bytes ?? value * MIB) / MIB,
  }[limit as "wall_seconds" | "cpu_seconds" | "mem_mb"];
  return { limit, value, observed, sampled: false };
}

const MIB = 1024 ** 2;

function millisecondsOf(seconds: number | undefined): number {
  return seconds === undefined ? 0 : Math.ceil(seconds * 1000);
}
