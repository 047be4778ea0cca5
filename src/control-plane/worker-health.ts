/** Claims of one worker that failed in a row: after some of them it rests. */

import { startTimer, type Timer } from "../core/timer.ts";

/** Claims in a row that fail before a worker rests. */
export const QUARANTINE_AFTER = 3;
/** How long it rests; one more failure after that, and it rests again. */
export const QUARANTINE_MS = 60_000;

/** The health of one worker. */
export class WorkerHealth {
  readonly #restMs: number;
  readonly #onRested: () => void;
  #failures = 0;
  #rest: Timer | null = null;

  /** @param onRested called when a rest is over */
  constructor({ restMs, onRested }: { readonly restMs: number; readonly onRested: () => void }) {
    this.#restMs = restMs;
    this.#onRested = onRested;
  }

  /** Claims in a row that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** Whether it rests now. */
  get isQuarantined(): boolean {
    return this.#rest !== null;
  }

  /** A claim could be used. */
  succeeded(): void {
    this.#failures = 0;
  }

  /** A claim failed, and not for what was asked for. */
  failed(): void {
    this.#failures += 1;
    if (this.#failures < QUARANTINE_AFTER || this.#rest !== null) return;
    this.#rest = startTimer(this.#restMs, () => {
      this.#rest = null;
      this.#onRested();
    });
  }

  /** Forgets all failures. */
  clear(): void {
    this.#failures = 0;
    this.#rest?.clear();
    this.#rest = null;
  }
}
