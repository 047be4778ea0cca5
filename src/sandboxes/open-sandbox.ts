/**
 * A sandbox that a client holds open, from its lease to its end: what runs in it, how long nothing
 * does, and the one reason why it ends. Knows neither store nor HTTP.
 */

import { CprgError } from "../core/errors.ts";
import type { SandboxEnd, SandboxRecord } from "../core/sandbox.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { HeldLease } from "../provider/contract.ts";
import { EXECS_MAX, TRANSFERS_MAX } from "./bounds.ts";
import type { LiveExec } from "./live-exec.ts";
import type { SandboxSpec } from "./spec.ts";

/** How a sandbox is asked to end. */
export interface EndRequest {
  readonly reason: SandboxEnd;
  /** Time between SIGTERM and SIGKILL for what runs in it. */
  readonly graceMs: number;
}

/** What an open sandbox is made of. */
export interface OpenSandboxParts {
  readonly record: SandboxRecord;
  readonly spec: SandboxSpec;
  readonly lease: HeldLease;
  /** Called once, when everything in it is gone: stores the end. */
  onEnded(reason: SandboxEnd): Promise<void>;
  /** Called when its lease could not be given back. */
  onStuck(error: unknown): void;
}

/** The error of whoever uses a sandbox that has ended. */
export function sandboxEnded(id: string, reason: SandboxEnd | null): CprgError {
  return new CprgError("aborted", `Cannot use sandbox "${id}": it has ended`, {
    reason: "SANDBOX_ENDED",
    retryable: false,
    hint: `Why: ${reason ?? "interrupted"}. Open another one`,
  });
}

/** One open sandbox. */
export class OpenSandbox {
  readonly #parts: OpenSandboxParts;
  readonly #execs = new Map<string, LiveExec>();
  readonly #lifetime: Timer;
  #idle: Timer | null = null;
  #uses = 0;
  #transfers = 0;
  /** Starts whose exec is not added yet: each resolves when it is, or will not be. */
  readonly #starting = new Set<Promise<void>>();
  #ending: EndRequest | null = null;
  #end: Promise<void> | null = null;

  constructor(parts: OpenSandboxParts) {
    this.#parts = parts;
    const { spec, lease } = parts;
    const { lifetimeSeconds } = spec;
    this.#lifetime = startTimer(lifetimeSeconds * 1000, () => this.#endOnTime("lifetime"));
    this.#restartIdle();
    const { gone } = lease;
    gone?.addEventListener("abort", () => this.#lost(gone), { once: true });
    if (gone?.aborted === true) this.#lost(gone);
  }

  get record(): SandboxRecord {
    return this.#parts.record;
  }

  get spec(): SandboxSpec {
    return this.#parts.spec;
  }

  get lease(): HeldLease {
    return this.#parts.lease;
  }

  /** Why it is ending, or null. */
  get ending(): EndRequest | null {
    return this.#ending;
  }

  /** The error of what its end cut short, or of what comes too late. */
  get endedError(): CprgError {
    return sandboxEnded(this.record.id, this.#ending?.reason ?? null);
  }

  /** Execs that run or start. */
  get execs(): ReadonlyMap<string, LiveExec> {
    return this.#execs;
  }

  /**
   * While it is held the sandbox is in use, and not idle.
   *
   * @param onDone called once, when it is disposed of
   */
  use(onDone: () => void = () => undefined): Disposable {
    this.#uses += 1;
    this.#idle?.clear();
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        onDone();
        this.#uses -= 1;
        this.#restartIdle();
      },
    };
  }

  /**
   * A use that moves files.
   *
   * @throws CprgError `resource_exhausted` when {@link TRANSFERS_MAX} are under way
   */
  useForTransfer(): Disposable {
    if (this.#transfers >= TRANSFERS_MAX) {
      throw new CprgError(
        "resource_exhausted",
        `Cannot move files: ${TRANSFERS_MAX} transfers of this sandbox are under way`,
        { reason: "TRANSFERS", retryAfterSeconds: 1 },
      );
    }
    this.#transfers += 1;
    return this.use(() => {
      this.#transfers -= 1;
    });
  }

  /**
   * A use that starts an exec, which counts until it is disposed of or the exec is added.
   *
   * @throws CprgError `resource_exhausted` when {@link EXECS_MAX} run or start
   */
  placeForExec(): Disposable {
    if (this.#execs.size + this.#starting.size >= EXECS_MAX) {
      throw new CprgError(
        "resource_exhausted",
        `Cannot start a program: ${EXECS_MAX} run in this sandbox`,
        { reason: "EXECS", retryAfterSeconds: 1 },
      );
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#starting.add(promise);
    return this.use(() => {
      this.#starting.delete(promise);
      resolve();
    });
  }

  /** Notes an exec until it has ended. */
  add(exec: LiveExec): void {
    const use = this.use(() => this.#execs.delete(exec.id));
    this.#execs.set(exec.id, exec);
    if (this.#ending !== null) exec.kill(this.#ending.reason, this.#ending);
    void exec.done.finally(() => use[Symbol.dispose]());
  }

  /**
   * Kills what runs and gives the lease back; resolves when the end is stored. The first reason
   * counts; asking again can only shorten the grace.
   */
  end(request: EndRequest): Promise<void> {
    const isFirst = this.#ending === null;
    this.#ending ??= request;
    const { reason } = this.#ending;
    for (const exec of this.#execs.values()) exec.kill(reason, request);
    if (isFirst) this.#end = this.#close(reason);
    return this.#end ?? Promise.resolve();
  }

  async #close(reason: SandboxEnd): Promise<void> {
    this.#lifetime.clear();
    this.#idle?.clear();
    const { lease, onEnded, onStuck } = this.#parts;
    // Transfers are cut by the release; execs had their grace first.
    while (this.#execs.size + this.#starting.size > 0) {
      await Promise.all([...this.#starting, ...[...this.#execs.values()].map(({ done }) => done)]);
    }
    try {
      await lease.release();
    } catch (error) {
      onStuck(error);
    }
    await onEnded(reason);
  }

  #restartIdle(): void {
    this.#idle?.clear();
    if (this.#uses > 0 || this.#ending !== null) return;
    this.#idle = startTimer(this.#parts.spec.idleSeconds * 1000, () => this.#endOnTime("idle"));
  }

  /** Its worker, or the claim there, has ended by itself; after its own end this says nothing new. */
  #lost({ reason }: AbortSignal): void {
    const isLost = CprgError.is(reason) && reason.reason === "WORKER_LOST";
    void this.end({ reason: isLost ? "worker_lost" : "interrupted", graceMs: 0 });
  }

  #endOnTime(reason: "idle" | "lifetime"): void {
    void this.end({ reason, graceMs: 0 });
  }
}
