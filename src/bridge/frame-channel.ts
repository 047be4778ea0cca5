/** A stream of frames over what Connect gives and takes: one iterable of Envelopes each way. */

import { CprgError } from "../core/errors.ts";
import type { Envelope } from "../gen/outrigger/v1/bridge_pb.js";
import { envelopeOf, frameOf } from "./codec.ts";
import { streamError } from "./connect-errors.ts";
import type { Frame, FrameStream } from "./contract.ts";

interface Handoff {
  readonly envelope: Envelope;
  /** Connect has written it and asks for the next. */
  readonly taken: () => void;
  readonly lost: (error: CprgError) => void;
}

/** One end of the stream. */
export class FrameChannel implements FrameStream {
  readonly frames: AsyncIterable<Frame>;
  readonly #received: AsyncIterator<Envelope>;
  readonly #onClose: (error: CprgError | undefined) => void;
  #end: { readonly error: CprgError | undefined } | undefined;
  #stopReading: () => void = () => undefined;
  /** Given to Connect, or waiting to be. */
  #handed: Handoff | undefined;
  #waiting: Handoff | undefined;
  #pull: (() => void) | undefined;

  /** @param onClose it has ended for this side: what carries it is to end too */
  constructor(
    received: AsyncIterable<Envelope>,
    onClose: (error: CprgError | undefined) => void = () => undefined,
  ) {
    this.#received = received[Symbol.asyncIterator]();
    this.#onClose = onClose;
    this.frames = { [Symbol.asyncIterator]: () => ({ next: () => this.#next() }) };
  }

  send(frame: Frame): Promise<void> {
    if (this.#end !== undefined) return Promise.reject(closedError(this.#end.error));
    return new Promise((taken, lost) => {
      this.#waiting = { envelope: envelopeOf(frame), taken, lost };
      this.#pull?.();
    });
  }

  /** Ends it: for its owner, or because what carries it is gone. */
  close(error?: CprgError): void {
    if (this.#end !== undefined) return;
    this.#end = { error };
    for (const handoff of [this.#handed, this.#waiting]) handoff?.lost(closedError(error));
    this.#handed = undefined;
    this.#waiting = undefined;
    this.#stopReading();
    this.#pull?.();
    this.#onClose(error);
  }

  /** Why it was closed or lost; undefined if it ended well, or is open. */
  get error(): CprgError | undefined {
    return this.#end?.error;
  }

  /** What Connect is to send: one at a time, each when the one before it has been written. */
  async *outgoing(): AsyncGenerator<Envelope, void, undefined> {
    try {
      for (;;) {
        this.#handed?.taken();
        this.#handed = undefined;
        while (this.#waiting === undefined && this.#end === undefined) await this.#nextPull();
        if (this.#end !== undefined) return;
        this.#handed = this.#waiting;
        this.#waiting = undefined;
        if (this.#handed !== undefined) yield this.#handed.envelope;
      }
    } finally {
      this.close(new CprgError("unavailable", "the connection was lost"));
    }
  }

  #nextPull(): Promise<void> {
    return new Promise((resolve) => {
      this.#pull = () => {
        this.#pull = undefined;
        resolve();
      };
    });
  }

  async #next(): Promise<IteratorResult<Frame, undefined>> {
    if (this.#end !== undefined) return this.#finished(this.#end.error);
    const stopped = new Promise<undefined>((resolve) => {
      this.#stopReading = () => resolve(undefined);
    });
    try {
      const next = await Promise.race([this.#received.next(), stopped]);
      if (next !== undefined && !next.done) return { done: false, value: frameOf(next.value) };
      return this.#finished(this.error);
    } catch (thrown) {
      return this.#finished(this.#isEnded() ? this.error : streamError(thrown));
    }
  }

  #isEnded(): boolean {
    return this.#end !== undefined;
  }

  #finished(error: CprgError | undefined): { done: true; value: undefined } {
    if (error !== undefined) throw error;
    return { done: true, value: undefined };
  }
}

function closedError(error: CprgError | undefined): CprgError {
  return error ?? new CprgError("unavailable", "the stream has ended");
}
