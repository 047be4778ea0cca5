/**
 * One program in a sandbox, from its pipes to its outcome. It has ended when every process of its
 * group is dead, not when its main process is; only then is the outcome known.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type { Outcome, Violation } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Exec, ExecNotice, TerminalSize } from "../provider/contract.ts";
import type { ExecGroup } from "./cgroup.ts";
import { emptyGroup } from "./empty-group.ts";
import { decideOutcome, isUnnamedViolation, type MainEnd } from "./exec-outcome.ts";
import type { InputPipe } from "./input.ts";
import { killUntil } from "./kill-until.ts";
import type { Report } from "./layout.ts";
import type { Native } from "./native.ts";
import type { NoticeQueue } from "./notice-queue.ts";
import type { OutputStream } from "./output.ts";
import type { Sandbox } from "./sandbox.ts";
import { UNNAMED_VIOLATION, violationOf } from "./seccomp/violation.ts";
import { encodeSignal } from "./spawn-plan.ts";
import { signalNumber } from "./steps.ts";
import type { LimitWatch } from "./watch.ts";

/** What Ctrl-D types: the default of VEOF, termios(3). */
const END_OF_FILE = new Uint8Array([4]);
const SIGTERM = "SIGTERM";
const SIGKILL = 9;
/** Tries to signal a main process whose sandbox is busy, and the pause between two. */
const SIGNAL_TRIES_MAX = 200;
const SIGNAL_PAUSE_MS = 5;

/** The parts of a program that has been started. */
export interface ExecParts {
  readonly id: number;
  readonly native: Native;
  readonly sandbox: Sandbox;
  readonly limits: Limits;
  readonly log: Log;
  readonly group: ExecGroup;
  readonly watch: LimitWatch;
  readonly queue: NoticeQueue;
  readonly outputs: readonly OutputStream[];
  readonly input: InputPipe | null;
  /** Our end of its terminal, -1 once it is closed; null without one. */
  readonly terminal: { fd: number } | null;
  /** The report that it runs. */
  readonly started: Report;
  /** The report of its end, or null when the sandbox ended first. */
  readonly exited: Promise<Report | null>;
  /** The report of its first violation, before that of its end. */
  readonly violated: Promise<Report>;
}

/** Why and when it was ended by us. */
export interface KillRequest {
  readonly reason: Reason;
  readonly atNs: bigint;
}

/** A program that runs in a local sandbox. */
export class LocalExec implements Exec {
  readonly #parts: ExecParts;
  readonly #killed = new Set<number>();
  readonly #violations: Violation[] = [];
  #request: KillRequest | null = null;
  #graceTimer: Timer | null = null;
  #graceEndsMs = Number.POSITIVE_INFINITY;
  #isMainGone = false;
  #isKilling = false;
  /** When the caller itself sent SIGKILL. */
  #killSentNs: bigint | null = null;
  /** Settles when the sandbox was destroyed, or could not be, because this exec does not end. */
  readonly #destroyed = Promise.withResolvers<null>();
  readonly outcome: Promise<Outcome>;
  /** Resolves when every stream has been read to its end. */
  readonly drained: Promise<unknown>;

  constructor(parts: ExecParts) {
    this.#parts = parts;
    this.drained = Promise.allSettled(parts.outputs.map(({ done }) => done));
    parts.watch.start();
    // Before `#run` waits for the end, so that of two reports in one read this one is seen first.
    void parts.violated.then((report) => this.#violate(report));
    this.outcome = this.#run();
  }

  get notices(): AsyncIterable<ExecNotice> {
    return this.#parts.queue;
  }

  get pid(): number {
    return this.#parts.started.pid;
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#inputPipe().write(bytes);
  }

  async closeInput(): Promise<void> {
    const input = this.#inputPipe();
    // The master stays open: closing it would hang up, not end the input.
    await (this.#parts.terminal === null ? input.close() : input.write(END_OF_FILE));
  }

  resize(size: TerminalSize): void {
    const { terminal, native } = this.#parts;
    if (terminal === null) {
      throw new CprgError("failed_precondition", "Cannot resize: the program has no terminal", {
        reason: "NO_TERMINAL",
      });
    }
    if (terminal.fd >= 0) native.resize(terminal.fd, size);
  }

  signal(name: string): void {
    const number = signalNumber(name);
    if (this.#isMainGone) return;
    if (number === SIGKILL) this.#killSentNs ??= this.#parts.native.monotonicNs();
    void this.#sendSignal(number);
  }

  kill(reason: Reason, options: { readonly graceMs?: number } = {}): void {
    this.#kill({ reason, atNs: this.#parts.native.monotonicNs() }, options);
  }

  #kill(request: KillRequest, options: { readonly graceMs?: number } = {}): void {
    if (this.#isMainGone) return;
    const isFirst = this.#request === null;
    this.#request ??= request;
    const graceMs = Math.max(0, options.graceMs ?? 0);
    const endsMs = performance.now() + graceMs;
    if (endsMs >= this.#graceEndsMs) return;
    this.#graceEndsMs = endsMs;
    this.#graceTimer?.clear();
    if (graceMs === 0) {
      this.#killUntilGone();
      return;
    }
    if (isFirst) this.signal(SIGTERM);
    this.#graceTimer = startTimer(graceMs, () => this.#killUntilGone());
  }

  /** The sandbox is being removed: nobody will read what is left. */
  abandon(): void {
    this.#parts.queue.discard();
    this.#parts.input?.abandon();
    for (const output of this.#parts.outputs) output.stop();
  }

  /** Removes its empty group. */
  removeGroup(): Promise<void> {
    return this.#parts.group.remove();
  }

  #inputPipe(): InputPipe {
    const { input } = this.#parts;
    if (input !== null) return input;
    throw new CprgError("failed_precondition", "Cannot write to standard input: it is /dev/null", {
      reason: "INPUT_CLOSED",
    });
  }

  async #sendSignal(number: number): Promise<void> {
    const { sandbox, id } = this.#parts;
    const message = encodeSignal(id, number);
    for (let tries = 0; tries < SIGNAL_TRIES_MAX && !this.#isMainGone; tries += 1) {
      try {
        if (sandbox.channel.trySend(message, [])) return;
      } catch {
        // The sandbox has ended, and the program with it.
        return;
      }
      await sleep(SIGNAL_PAUSE_MS);
    }
  }

  /** Process 1 has killed the main process already; the others of the group may still run. */
  #violate(report: Report): void {
    this.#note(violationOf(report.code, report.entries));
    this.#kill({ reason: "seccomp_violation", atNs: report.atNs });
  }

  #note(violation: Violation): void {
    this.#violations.push(violation);
    this.#parts.queue.push({ type: "violation", violation });
  }

  /** Kills until the end of the main process is reported; after a bound, its sandbox with it. */
  #killUntilGone(): void {
    if (this.#isKilling) return;
    this.#isKilling = true;
    void killUntil(this.#parts.exited, {
      kill: () => this.#killGroup(),
      giveUp: () => {
        this.#parts.log.error("main process does not die, ending its sandbox", {});
        void this.#destroySandbox();
      },
    });
  }

  async #destroySandbox(): Promise<void> {
    try {
      await this.#parts.sandbox.destroy();
    } catch (error) {
      this.#parts.log.error("sandbox stuck", { error });
    }
    this.#destroyed.resolve(null);
  }

  /** Notes what is there, then kills it, and what it forks meanwhile. */
  #killGroup(): void {
    const { group, log } = this.#parts;
    for (const pid of group.processes()) this.#killed.add(pid);
    try {
      group.kill();
    } catch (error) {
      log.error("group not killed, ending its sandbox", { error });
      void this.#destroySandbox();
    }
  }

  async #run(): Promise<Outcome> {
    const { exited, sandbox, group, watch, log, native } = this.#parts;
    const report = await Promise.race([exited, this.#destroyed.promise]);
    this.#isMainGone = true;
    this.#graceTimer?.clear();
    const main: MainEnd =
      report === null ? { type: "lost", death: await deathOf(sandbox) } : { type: "ended", report };
    const endNs = report?.atNs ?? native.monotonicNs();
    try {
      await emptyGroup(group, { initPid: sandbox.pid, kill: () => this.#killGroup() });
    } catch (error) {
      log.error("exec not empty, ending its sandbox", { error });
      await this.#destroySandbox();
    }
    const counters = watch.finish();
    if (isUnnamedViolation(this.#parts.started, main)) this.#note(UNNAMED_VIOLATION);
    const outcome = decideOutcome({
      main,
      started: this.#parts.started,
      endNs,
      request: this.#request,
      killSentNs: this.#killSentNs,
      counters,
      watch,
      violations: this.#violations,
      limits: this.#parts.limits,
      killed: this.#killed.size,
    });
    this.#finish();
    return outcome;
  }

  #finish(): void {
    const { outputs, queue, input } = this.#parts;
    input?.abandon();
    for (const output of outputs) output.finishSoon();
    void this.drained.then(() => queue.end());
  }
}

async function deathOf(sandbox: Sandbox): Promise<{ code: number | null; signal: number | null }> {
  try {
    return await sandbox.death;
  } catch {
    // It cannot be reaped; whoever destroys the sandbox hears of it.
    return { code: null, signal: null };
  }
}
