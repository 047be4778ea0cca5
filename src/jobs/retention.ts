/**
 * Removes what ended longer ago than it is kept: at the start, then at an interval. Each sweep takes
 * short steps with pauses, so that whoever uses the store meanwhile waits for one step at most.
 */

import type { Clock } from "../core/clock.ts";
import type { Log } from "../core/log.ts";
import type { Store } from "../store/contract.ts";

/** Pause between two steps: as long as a step may take, so that a sweep uses half of the store. */
export const PRUNE_PAUSE_MS = 20;

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
  #isStopped = false;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  /** Begins with a sweep. */
  start(): void {
    if (this.#options.retentionHours === 0) return;
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
    await this.#options.onSweep?.(before);
    let runs = 0;
    let events = 0;
    while (!this.#isStopped) {
      const step = await store.prune(before);
      runs += step.runs;
      events += step.events;
      if (step.isDone) break;
      await Bun.sleep(PRUNE_PAUSE_MS);
    }
    return { runs, events };
  }

  async #run(): Promise<void> {
    const { log, clock, sweepIntervalMs } = this.#options;
    const startedMs = clock.monotonicMs();
    try {
      const { runs, events } = await this.sweep();
      if (runs > 0) await this.#options.onSwept?.();
      const duration_ms = Math.round(clock.monotonicMs() - startedMs);
      if (runs + events > 0) log.info("pruned", { runs, events, duration_ms });
    } catch (error) {
      log.warn("pruning failed, trying again at the next interval", { error });
    }
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#sweep = this.#run();
    }, sweepIntervalMs);
  }
}
