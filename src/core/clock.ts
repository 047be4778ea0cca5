/** Time as a dependency, so that tests can hold it still. */

/** Source of time. */
export interface Clock {
  /** Wall-clock milliseconds since 1970, UTC. */
  now(): number;
  /** Milliseconds of a clock that never goes back (CLOCK_MONOTONIC). */
  monotonicMs(): number;
}

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonicMs: () => performance.now(),
};

/** RFC 3339 in UTC with milliseconds. */
export function timestamp(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
