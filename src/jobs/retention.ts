/**
 * Removes what ended longer ago than it is kept: at the start, then at an interval, and sooner when the
 * disk is full. Each sweep takes short steps with pauses, so that whoever uses the store meanwhile waits for one step at most.
 */

import type { Clock } from "../core/clock.ts";
import type { Log } from "../core/log.ts";
import type { Store } from "../store/contract.ts";

/** Pause between two steps: as long as a step may take, so that a sweep uses half of the store. */
export const PRUNE_PAUSE_MS = 20;

/** Least time between two sweeps that a full disk asked for. */
export const DISK_FULL_SWEEP_INTERVAL_MS = 60_000;

const HOUR_MS = 3_600_000;

/** What a retention works with. */
export interface RetentionOptions {
  readonly store: Pick<Store, "prune">;
  /** How long what has ended is kept; 0: for ever. */
  readonly retentionHours: number;
  readonly sweepIntervalMs: number;
  /** Called with each sweep: what else ended before the time goes too, in milliseconds since 1970. */
  onSweep?(before: number): Promise<unknown>;
  /** Called after a sweep that removed runs: what is kept of them outside of the store goes too. */
  onSwept?(): Promise<unknown>;
  readonly clock: Clock;
  readonly log: Log;
}

/** What one sweep removed. */
export interface Swept {
  readonly runs: number;
  readonly events: number;
}

/** Sweeps until it is stopped. */
export class Retention {
  readonly #options: RetentionOptions;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #sweep: Promise<unknown> | null = null;
  #isSweeping = false;
  #isStopped = false;
  /** Runs went, and what is kept of them elsewhere did not. */
  #isSweptDue = false;
  /** When a full disk last asked for a sweep, on the monotonic clock. */
  #hurriedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  /** Begins with a sweep. */
  start(): void {
    if (this.#options.retentionHours === 0) return;
    this.#sweep = this.#run();
  }

  /**
   * Sweeps now, because the disk is full; at most once in {@link DISK_FULL_SWEEP_INTERVAL_MS}, since a
   * disk that is full of something else stays so.
   */
  hurry(): void {
    const { retentionHours, clock, log } = this.#options;
    if (retentionHours === 0 || this.#isStopped || this.#isSweeping) return;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#hurriedAtMs < DISK_FULL_SWEEP_INTERVAL_MS) return;
    this.#hurriedAtMs = nowMs;
    log.warn("the disk is full: removing what is past its retention now");
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#sweep = this.#run();
  }

  /** Ends after the step that is under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#sweep;
  }

  /**
   * Removes everything that is past its time now, unless it is stopped meanwhile.
   *
   * @throws CprgError when the store fails
   */
  async sweep(): Promise<Swept> {
    const { store, retentionHours, clock } = this.#options;
    const before = clock.now() - retentionHours * HOUR_MS;
    let runs = 0;
    let events = 0;
    while (!this.#isStopped) {
      const step = await store.prune(before);
      runs += step.runs;
      this.#isSweptDue ||= step.runs > 0;
      events += step.events;
      if (step.isDone) break;
      await Bun.sleep(PRUNE_PAUSE_MS);
    }
    // After what makes room: on a full disk this finds some only then.
    if (!this.#isStopped) await this.#options.onSweep?.(before);
    return { runs, events };
  }

  /** Tells of a sweep that failed, too: what it removed is gone, and files may be what fills the disk. */
  async #sweepAndTell(): Promise<Swept> {
    try {
      return await this.sweep();
    } finally {
      if (this.#isSweptDue) await this.#options.onSwept?.();
      this.#isSweptDue = false;
    }
  }

  async #run(): Promise<void> {
    const { log, clock, sweepIntervalMs } = this.#options;
    const startedMs = clock.monotonicMs();
    this.#isSweeping = true;
    try {
      const { runs, events } = await this.#sweepAndTell();
      const duration_ms = Math.round(clock.monotonicMs() - startedMs);
      if (runs + events > 0) log.info("pruned", { runs, events, duration_ms });
    } catch (error) {
      log.warn("pruning failed, trying again at the next interval", { error });
    } finally {
      this.#isSweeping = false;
    }
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#sweep = this.#run();
    }, sweepIntervalMs);
  }
}
