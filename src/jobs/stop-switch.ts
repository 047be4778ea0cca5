/** Asking one run to stop: by a user, or because the server does. The first reason counts. */

import type { Reason } from "../core/reasons.ts";

/** A request to stop. */
export interface StopRequest {
  /** Becomes the outcome's reason, unless the program ended by itself before. */
  readonly reason: Extract<Reason, "user" | "shutdown">;
  /** Time between SIGTERM and SIGKILL. */
  readonly graceMs: number;
}

/** Carries requests to stop from whoever asks to the run; asking again can only shorten the grace. */
export class StopSwitch {
  readonly #controller = new AbortController();
  #listener: ((request: StopRequest) => void) | null = null;
  #request: StopRequest | null = null;

  /** The first request's reason and the shortest grace so far, or null. */
  get request(): StopRequest | null {
    return this.#request;
  }

  /** Aborts at the first request: for what can be given up at once. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Asks. */
  stop(request: StopRequest): void {
    const first = this.#request ?? request;
    this.#request = {
      reason: first.reason,
      graceMs: Math.min(first.graceMs, request.graceMs),
    };
    this.#controller.abort();
    this.#listener?.(this.#request);
  }

  /** Hears of every request, also of one made before. One listener. */
  listen(listener: (request: StopRequest) => void): void {
    this.#listener = listener;
    if (this.#request !== null) listener(this.#request);
  }
}
