/** Defaults, ceilings and bounds of sandboxes that clients hold open, in one place. */

/** A time that a client may ask for, in seconds. */
export interface TimeRule {
  readonly default: number;
  readonly least: number;
  readonly ceiling: number;
}

/** Longest time in which neither an exec runs nor a file is moved. */
export const IDLE_SECONDS: TimeRule = { default: 600, least: 1, ceiling: 86_400 };
/** Longest time from a sandbox's start to its end, whatever happens in it. */
export const LIFETIME_SECONDS: TimeRule = { default: 3600, least: 1, ceiling: 86_400 };

/** Sandboxes that one tenant may have open, by default. */
export const TENANT_SANDBOXES_DEFAULT = 8;
/** Execs that may run at once in one sandbox. */
export const EXECS_MAX = 64;
/** Transfers that may go on at once in one sandbox. */
export const TRANSFERS_MAX = 8;
/** Bytes of input that may wait for the program of one exec. */
export const INPUT_WAITING_BYTES_MAX = 1024 * 1024;

/** How long the limits of a new sandbox may wait for room beside the others. */
export const ADMISSION_WAIT_MS = 10_000;
/** Columns and rows of a terminal: what TIOCSWINSZ can say. */
export const TERMINAL_SIDE_MAX = 65_535;
