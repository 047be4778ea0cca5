/** One exec from its stored start to its stored end: started, recorded, waited for. */

import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { ExecRecord } from "../core/exec.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import type { Exec, ExecSpec, HeldLease, TerminalSize } from "../provider/contract.ts";
import { neverRan, notRecorded, outcomeError, setupReason } from "../record/failed-outcome.ts";
import { Recorder } from "../record/recorder.ts";
import { sandboxVariables } from "../sandbox/variables.ts";
import type { TimedDraft } from "../store/contract.ts";
import { INPUT_WAITING_BYTES_MAX } from "./bounds.ts";
import type { ExecPlan } from "./spec.ts";

/** What one exec works with. */
export interface LiveExecOptions {
  readonly record: ExecRecord;
  readonly plan: ExecPlan;
  readonly lease: HeldLease;
  readonly clock: Clock;
  readonly log: Log;
  /** Commits events of this exec, in order. */
  append(drafts: readonly TimedDraft[]): Promise<unknown>;
  /** Stores the end. */
  finish(outcome: Outcome): Promise<void>;
  /** Called when the sandbox turned out to have ended by itself. */
  onGone(): void;
}

interface Kill {
  readonly reason: Reason;
  readonly graceMs: number;
}

/** An exec that runs here. */
export class LiveExec {
  readonly #options: LiveExecOptions;
  readonly #abort = new AbortController();
  #exec: Exec | null = null;
  #kill: Kill | null = null;
  #waitingBytes = 0;
  /** Resolves when its end is stored, or storing it was given up; never rejects. */
  readonly done: Promise<void>;
  /** Resolves when it runs, or never will. */
  readonly started: Promise<void>;

  constructor(options: LiveExecOptions) {
    this.#options = options;
    const started = Promise.withResolvers<void>();
    this.started = started.promise;
    this.done = this.#run(started.resolve).finally(started.resolve);
  }

  get id(): string {
    return this.#options.record.id;
  }

  /** Ends it: the first reason counts, and the shortest grace. */
  kill(reason: Reason, { graceMs }: { readonly graceMs: number }): void {
    this.#kill = {
      reason: this.#kill?.reason ?? reason,
      graceMs: Math.min(graceMs, this.#kill?.graceMs ?? graceMs),
    };
    this.#abort.abort();
    this.#exec?.kill(reason, { graceMs });
  }

  /** Ends it as its client asked for. */
  cancel(): void {
    this.kill("user", { graceMs: this.#options.plan.graceMs });
  }

  /**
   * Writes to its input, after what was written before; resolves when the kernel took the bytes.
   *
   * @throws CprgError `failed_precondition` when it has none, or closed it; `resource_exhausted`
   *   when more than {@link INPUT_WAITING_BYTES_MAX} would wait
   */
  async write(bytes: Uint8Array): Promise<void> {
    const exec = this.#running("write to");
    if (this.#waitingBytes + bytes.length > INPUT_WAITING_BYTES_MAX) {
      throw new CprgError(
        "resource_exhausted",
        "Cannot write: the program does not read its input",
        {
          reason: "INPUT_FULL",
          hint: `At most ${INPUT_WAITING_BYTES_MAX} bytes wait for it`,
          retryAfterSeconds: 1,
        },
      );
    }
    this.#waitingBytes += bytes.length;
    try {
      await exec.write(bytes);
    } finally {
      this.#waitingBytes -= bytes.length;
    }
  }

  async closeInput(): Promise<void> {
    await this.#running("close the input of").closeInput();
  }

  /** @throws CprgError `invalid_argument` for a name that is no signal */
  signal(name: string): void {
    this.#running("signal").signal(name);
  }

  resize(size: TerminalSize): void {
    this.#running("resize").resize(size);
  }

  #running(verb: string): Exec {
    if (this.#exec !== null) return this.#exec;
    throw new CprgError("aborted", `Cannot ${verb} exec "${this.id}": it does not run`, {
      reason: "EXEC_NOT_RUNNING",
      retryable: false,
    });
  }

  async #run(onStarted: () => void): Promise<void> {
    const outcome = await this.#outcome(onStarted);
    this.#exec = null;
    try {
      await this.#options.finish(outcome);
    } catch (error) {
      this.#options.log.error("exec end not stored, given up", {
        exec_id: this.id,
        outcome,
        error,
      });
    }
  }

  async #outcome(onStarted: () => void): Promise<Outcome> {
    const { lease } = this.#options;
    let exec: Exec;
    try {
      exec = await lease.exec(this.#spec());
    } catch (error) {
      if (this.#kill !== null) return neverRan(this.#kill.reason);
      if (CprgError.from(error).reason === "SANDBOX_GONE") this.#options.onGone();
      return neverRan(setupReason(error), outcomeError(error));
    }
    this.#exec = exec;
    if (this.#kill !== null) exec.kill(this.#kill.reason, this.#kill);
    const recorded = this.#record(exec);
    onStarted();
    return await recorded;
  }

  #spec(): ExecSpec {
    const { plan, lease } = this.#options;
    const [executable = "", ...args] = plan.argv;
    const { wall_seconds, cpu_seconds, output_kb } = plan.limits;
    return {
      executable,
      arguments: args,
      directory: plan.directory ?? lease.root,
      variables:
        lease.variables === undefined
          ? sandboxVariables(plan.env)
          : { ...lease.variables, ...plan.env },
      limits: { wall_seconds, cpu_seconds, output_kb },
      signal: this.#abort.signal,
      ...(plan.stdin === null ? {} : { stdin: plan.stdin }),
      ...(plan.terminal === null ? {} : { terminal: plan.terminal }),
    };
  }

  async #record(exec: Exec): Promise<Outcome> {
    const { plan, lease, clock, append } = this.#options;
    const failures: unknown[] = [];
    const giveUp = (error: unknown): void => {
      if (failures.push(error) === 1) exec.kill("runner_error", { graceMs: 0 });
    };
    const recorder = new Recorder({ append, clock, onFailure: giveUp });
    recorder.record({
      kind: "started",
      data: {
        layers: lease.layers,
        missing: lease.missing,
        limits: plan.limits,
        interpreter: null,
      },
    });
    const followed = recorder.follow(exec.notices).catch(giveUp);
    const outcome = await exec.outcome;
    await followed;
    return failures.length === 0 ? outcome : notRecorded(outcome, failures[0]);
  }
}
