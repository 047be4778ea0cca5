/**
 * How many requests a key may make: fixed windows of a minute, each beginning with its key's first
 * request after the last one's end.
 */

import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";

/** Requests of one key in a window, by default. */
export const RATE_PER_MIN_DEFAULT = 120;
/** Highest rate that can be set. */
export const RATE_PER_MIN_MAX = 1_000_000;
/** Length of a window. */
export const RATE_WINDOW_MS = 60_000;
/** Windows that are open at once: more than there can be keys. */
export const RATE_WINDOWS_MAX = 16_384;

interface Window {
  readonly endsMs: number;
  taken: number;
}

/** What windows are counted under. */
export interface RateOptions {
  readonly perMin?: number;
  readonly clock?: Pick<Clock, "monotonicMs">;
  readonly windowsMax?: number;
}

/** Windows of all keys; in the order of their ends, because all are of one length. */
export class RateWindows {
  readonly #perMin: number;
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #windowsMax: number;
  readonly #windows = new Map<string, Window>();

  constructor({ perMin, clock, windowsMax }: RateOptions = {}) {
    this.#perMin = perMin ?? RATE_PER_MIN_DEFAULT;
    this.#clock = clock ?? systemClock;
    this.#windowsMax = windowsMax ?? RATE_WINDOWS_MAX;
  }

  /** Windows that are held. */
  get size(): number {
    return this.#windows.size;
  }

  /**
   * Counts one request.
   *
   * @param perMin the key's own rate; null: the server's
   * @throws CprgError `resource_exhausted` with reason RATE_LIMITED, and the seconds after which a
   *   request passes: no fewer are enough
   */
  take(keyId: string, perMin: number | null): void {
    // Whole: fractions would make a second of what rounding adds.
    const now = Math.floor(this.#clock.monotonicMs());
    this.#dropEnded(now);
    const window = this.#windows.get(keyId) ?? this.#open(keyId, now);
    const most = perMin ?? this.#perMin;
    if (window.taken >= most) throw limited(most, window.endsMs - now);
    window.taken += 1;
  }

  #open(keyId: string, now: number): Window {
    if (this.#windows.size >= this.#windowsMax) {
      const [oldest] = this.#windows.values();
      throw limited(0, (oldest?.endsMs ?? now) - now);
    }
    const window = { endsMs: now + RATE_WINDOW_MS, taken: 0 };
    this.#windows.set(keyId, window);
    return window;
  }

  #dropEnded(now: number): void {
    for (const [keyId, { endsMs }] of this.#windows) {
      if (endsMs > now) return;
      this.#windows.delete(keyId);
    }
  }
}

function limited(most: number, waitMs: number): CprgError {
  const message = `Cannot answer: the key has made ${most} requests in this minute`;
  return new CprgError("resource_exhausted", message, {
    reason: "RATE_LIMITED",
    hint: "Try again after the seconds of Retry-After",
    retryable: true,
    retryAfterSeconds: Math.ceil(waitMs / 1000),
  });
}
