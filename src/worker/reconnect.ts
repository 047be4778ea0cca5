/** When a worker dials again, and when it stops: proto/PROTOCOL.md sections 2, 8 and 10, as values. */

import type { CprgError, ErrorCode } from "../core/errors.ts";

/** Pause after the first loss, and the longest; each is doubled and cut to a random part of itself. */
export const PAUSE_MS_LEAST = 1000;
export const PAUSE_MS_MOST = 60_000;
/** A stream that lived for so long starts the pauses anew. */
export const SETTLED_MS = 60_000;

/** Exit codes of a worker. */
export const WORKER_EXIT = { done: 0, failed: 1, usage: 2, refused: 3, unreached: 4 } as const;

/** What follows the end of a stream, or a dial that failed. */
export type NextStep =
  | { readonly type: "stop"; readonly exitCode: number }
  | { readonly type: "dial"; readonly pauseMs: number };

/** How it ended. */
export interface StreamEnd {
  /** Undefined: the status was OK. */
  readonly error: CprgError | undefined;
  /** How long the stream was there; null where none was. */
  readonly openMs: number | null;
}

/** How often it dials. */
export interface ReconnectOptions {
  /** Dials in a row that may fail to open a stream; for ever if left out. */
  readonly attemptsMax?: number;
  /** From 0 to 1. */
  readonly random?: () => number;
}

/** Pauses between attempts. */
export class Reconnect {
  readonly #random: () => number;
  readonly #attemptsMax: number;
  #pauseMs = PAUSE_MS_LEAST;
  #attempts = 0;
  #wasReached = false;

  constructor({ random = Math.random, attemptsMax }: ReconnectOptions = {}) {
    this.#random = random;
    this.#attemptsMax = attemptsMax ?? Number.POSITIVE_INFINITY;
  }

  /** What to do after an end. */
  next({ error, openMs }: StreamEnd): NextStep {
    this.#wasReached ||= openMs !== null;
    this.#attempts = openMs === null ? this.#attempts + 1 : 0;
    const exitCode = error === undefined ? null : stopCode(error);
    if (exitCode !== null) return { type: "stop", exitCode };
    if (this.#attempts >= this.#attemptsMax) {
      const { failed, unreached } = WORKER_EXIT;
      return { type: "stop", exitCode: this.#wasReached ? failed : unreached };
    }
    if ((openMs ?? 0) >= SETTLED_MS) this.#pauseMs = PAUSE_MS_LEAST;
    const pauseMs = this.#pauseMs * (0.5 + this.#random() / 2);
    this.#pauseMs = Math.min(PAUSE_MS_MOST, this.#pauseMs * 2);
    return { type: "dial", pauseMs };
  }
}

/**
 * The rows of the tables of sections 2 and 10 that stop a worker. Both halves of a row have to be
 * there: a proxy on the way answers with the same codes for faults that pass.
 */
const STOPS: Partial<Record<ErrorCode, { exitCode: number; reasons: readonly string[] }>> = {
  unauthenticated: {
    exitCode: WORKER_EXIT.refused,
    reasons: ["NO_TOKEN", "BAD_TOKEN", "TOKEN_EXPIRED", "TOKEN_REVOKED"],
  },
  invalid_argument: { exitCode: WORKER_EXIT.usage, reasons: ["BAD_METADATA"] },
  permission_denied: {
    exitCode: WORKER_EXIT.refused,
    reasons: ["ID_TAKEN", "ID_NOT_ALLOWED", "WORKER_REMOVED"],
  },
  aborted: { exitCode: WORKER_EXIT.refused, reasons: ["REPLACED"] },
};

function stopCode({ code, reason }: CprgError): number | null {
  const row = STOPS[code];
  return reason !== undefined && row?.reasons.includes(reason) ? row.exitCode : null;
}
