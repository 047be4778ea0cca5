/** Timers of any length: the runtime's own hold 2^31 - 1 ms, and a longer one fires at once. */

const SLICE_MS_MAX = 2 ** 31 - 1;

/** A timer that has been started. */
export interface Timer {
  /** Keeps it from firing; idempotent. */
  clear(): void;
}

/**
 * Calls a function once, after a time.
 *
 * @param delayMs relative; negative and NaN count as 0, Infinity as never
 */
export function startTimer(delayMs: number, action: () => void): Timer {
  let leftMs = Number.isNaN(delayMs) ? 0 : Math.max(0, delayMs);
  let handle: ReturnType<typeof setTimeout>;
  const arm = (): void => {
    const sliceMs = Math.min(leftMs, SLICE_MS_MAX);
    leftMs -= sliceMs;
    handle = setTimeout(leftMs > 0 ? arm : action, sliceMs);
  };
  arm();
  return { clear: () => clearTimeout(handle) };
}
