/** Bounds of silence on a connection. */

/** Seconds that a client may take nothing of an answer. */
export const ANSWER_IDLE_SECONDS = 60;
/** Seconds for a request that has a deadline of its own: no bound. */
export const NO_IDLE_TIMEOUT = 0;
