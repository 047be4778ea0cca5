/** A call that this side made: from its first REQUEST to its one end. */

import { CprgError } from "../core/errors.ts";
import type { Timer } from "../core/timer.ts";
import { type CallHost, frame } from "./call-host.ts";
import type { CallEnd, CallOptions, Frame } from "./contract.ts";
import { CANCEL } from "./methods.ts";
import type { SendCredit } from "./send-credit.ts";

/** Who takes what the callee answers. */
export interface AnswerTaker {
  /**
   * A RESPONSE. A promise holds back everything else that the peer sends.
   *
   * @throws CprgError when it is none of this method: the call is given up with it
   */
  response(payload: Uint8Array, call: OutgoingCall): Promise<void> | undefined;
  /** Whether a RESPONSE ends the call. */
  isEnd(payload: Uint8Array): boolean;
  /** The callee's end; either this or `leave` comes, once. */
  end(error: CprgError | undefined): void;
  /** This side has given up. */
  leave(error: CprgError): void;
}

/** How a call meets its mux. */
interface CallSetup {
  readonly id: string;
  readonly host: CallHost;
  readonly taker: AnswerTaker;
  /** Of the items that it sends, if it does. */
  readonly credit?: SendCredit | undefined;
  /** The callee has ended it: its id is free. */
  readonly forget: () => void;
}

/** One open call. */
export class OutgoingCall {
  readonly id: string;
  /** Resolves when the callee has ended it, or the stream is gone. */
  readonly ended: Promise<CallEnd>;
  readonly #setup: CallSetup;
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort: () => void;
  readonly #timer: Timer | undefined;
  #resolveEnded: (end: CallEnd) => void = () => undefined;
  /** The callee knows of it. */
  #isSent = false;
  #isCancelled = false;
  /** This side waits for nothing but the end. */
  #isLeft = false;

  constructor(setup: CallSetup, options: CallOptions) {
    this.id = setup.id;
    this.#setup = setup;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    const { signal, timeoutMs } = options;
    this.#signal = signal;
    this.#onAbort = () => this.leave(abortError(signal?.reason));
    signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (timeoutMs !== undefined) {
      this.#timer = setup.host.startTimer(timeoutMs, () =>
        this.leave(new CprgError("deadline_exceeded", "deadline exceeded")),
      );
    }
  }

  /** Sends a REQUEST of it, unless it is over for this side; resolves when the stream took it. */
  async send(request: Pick<Frame, "method" | "payload">): Promise<void> {
    if (this.#isLeft) return;
    this.#isSent = true;
    await this.#setup.host.send(frame("request", this.id, request));
  }

  /** Credit of the items that it sends. */
  get credit(): SendCredit | undefined {
    return this.#setup.credit;
  }

  /** Asks the callee to give up; once. */
  cancel(reason: string): void {
    if (this.#isCancelled || !this.#isSent) return;
    this.#isCancelled = true;
    const payload = CANCEL.request.encode({ requestId: this.id, reason });
    this.#setup.host.notice(CANCEL.name, payload);
  }

  /** Fails here and now; the callee is asked to give up, and what it still sends is dropped. */
  leave(error: CprgError): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#release();
    this.#setup.taker.leave(error);
    this.cancel(error.message);
    if (!this.#isSent) this.end(error);
  }

  /** Nobody waits for anything but its end. */
  get isLeft(): boolean {
    return this.#isLeft;
  }

  /** Takes a RESPONSE. A promise holds back the stream. */
  response(payload: Uint8Array): Promise<void> | undefined {
    if (this.#isLeft) {
      // Nobody hears of it, but the id is free.
      if (this.#setup.taker.isEnd(payload)) this.end();
      return undefined;
    }
    try {
      return this.#setup.taker.response(payload, this);
    } catch (thrown) {
      const error = CprgError.from(thrown);
      // What is wrong with the end of the call leaves nothing to cancel.
      if (this.#setup.taker.isEnd(payload)) this.end(error);
      else this.leave(error);
      return undefined;
    }
  }

  /** The callee's end, or the stream's. */
  end(error?: CprgError): void {
    this.#release();
    this.#setup.forget();
    if (!this.#isLeft) this.#setup.taker.end(error);
    this.#isLeft = true;
    this.#isCancelled = true;
    this.#resolveEnded({ error });
  }

  #release(): void {
    this.#timer?.clear();
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }
}

/** What an aborted signal means for the call. */
export function abortError(reason: unknown): CprgError {
  if (CprgError.is(reason)) return reason;
  const isTimeout = reason instanceof Error && reason.name === "TimeoutError";
  const text = reason instanceof Error ? reason.message : String(reason ?? "aborted");
  return new CprgError(isTimeout ? "deadline_exceeded" : "canceled", text, { cause: reason });
}
