/** When a worker dials again, and when it stops: proto/PROTOCOL.md sections 2, 8 and 10, as values. */

import type { CprgError } from "../core/errors.ts";

/** Pause after the first loss, and the longest; each is doubled and cut to a random part of itself. */
export const PAUSE_MS_LEAST = 1000;
export const PAUSE_MS_MOST = 60_000;
/** A stream that lived for so long starts the pauses anew. */
export const SETTLED_MS = 60_000;

/** Exit codes of a worker. */
export const WORKER_EXIT = { done: 0, failed: 1, usage: 2, refused: 3 } as const;

/** What follows the end of a stream, or a dial that failed. */
export type NextStep =
  | { readonly type: "stop"; readonly exitCode: number }
  | { readonly type: "dial"; readonly pauseMs: number };

/** How it ended. */
export interface StreamEnd {
  /** Undefined: the status was OK. */
  readonly error: CprgError | undefined;
  /** Whether it was accepted: an error then is no refusal of the metadata. */
  readonly wasOpen: boolean;
  readonly livedMs: number;
}

/** Pauses between attempts. */
export class Reconnect {
  readonly #random: () => number;
  #pauseMs = PAUSE_MS_LEAST;

  /** @param random from 0 to 1 */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** What to do after an end. */
  next({ error, wasOpen, livedMs }: StreamEnd): NextStep {
    const exitCode = error === undefined ? null : stopCode(error, wasOpen);
    if (exitCode !== null) return { type: "stop", exitCode };
    if (livedMs >= SETTLED_MS) this.#pauseMs = PAUSE_MS_LEAST;
    const pauseMs = this.#pauseMs * (0.5 + this.#random() / 2);
    this.#pauseMs = Math.min(PAUSE_MS_MOST, this.#pauseMs * 2);
    return { type: "dial", pauseMs };
  }
}

function stopCode({ code, reason }: CprgError, wasOpen: boolean): number | null {
  switch (code) {
    case "unauthenticated":
    case "permission_denied":
      return WORKER_EXIT.refused;
    case "aborted":
      return reason === "REPLACED" ? WORKER_EXIT.refused : null;
    case "invalid_argument":
      return !wasOpen || reason === "BAD_METADATA" ? WORKER_EXIT.usage : null;
    default:
      return null;
  }
}
