/**
 * Frames on their way to the stream, one at a time and in order. A call has at most one item here, so
 * calls take turns; what a peer can make grow by asking is bounded by `isFull`, at which the mux
 * reads no further.
 */

import type { CprgError } from "../core/errors.ts";
import type { Frame, FrameStream } from "./contract.ts";

/** Frames and payload bytes that wait, beyond which nothing more is read from the peer. */
export const OUTBOX_FRAMES_MAX = 4096;
export const OUTBOX_BYTES_MAX = 16 * 1024 * 1024;

interface Entry {
  readonly frame: Frame;
  readonly resolve: () => void;
  readonly reject: (error: CprgError) => void;
}

/** What it tells its mux. */
export interface OutboxEvents {
  sent(frame: Frame): void;
  /** The stream took a frame no more. */
  lost(error: unknown): void;
}

/** The sending half of a mux. */
export class Outbox {
  readonly #stream: FrameStream;
  readonly #events: OutboxEvents;
  #queue: Entry[] = [];
  #bytes = 0;
  #isSending = false;
  #error: CprgError | undefined;
  #waiting: (() => void)[] = [];

  constructor(stream: FrameStream, events: OutboxEvents) {
    this.#stream = stream;
    this.#events = events;
  }

  /** Resolves when the stream has taken the frame; rejects when it never will. */
  send(frame: Frame): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => {
      this.#queue.push({ frame, resolve, reject });
      this.#bytes += frame.payload.length;
      if (!this.#isSending) void this.#drain();
    });
  }

  /** Sends a frame whose fate interests nobody: if the stream is lost, so is its call. */
  post(frame: Frame): void {
    this.send(frame).catch(() => undefined);
  }

  get isFull(): boolean {
    return this.#queue.length >= OUTBOX_FRAMES_MAX || this.#bytes >= OUTBOX_BYTES_MAX;
  }

  /** Resolves when it is not full, or has failed. */
  async room(): Promise<void> {
    while (this.isFull) await this.#nextChange();
  }

  /** Resolves when everything has been taken, or it has failed. */
  async flushed(): Promise<void> {
    while (this.#isSending && this.#error === undefined) await this.#nextChange();
  }

  /** Gives up what waits, and everything that comes. */
  fail(error: CprgError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    const queue = this.#queue;
    this.#queue = [];
    this.#bytes = 0;
    for (const entry of queue) entry.reject(error);
    this.#changed();
  }

  async #drain(): Promise<void> {
    this.#isSending = true;
    for (let entry = this.#queue[0]; entry !== undefined; entry = this.#queue[0]) {
      try {
        await this.#stream.send(entry.frame);
      } catch (error) {
        this.#events.lost(error);
        break;
      }
      if (this.#queue[0] !== entry) break;
      this.#queue.shift();
      this.#bytes -= entry.frame.payload.length;
      this.#events.sent(entry.frame);
      entry.resolve();
      this.#changed();
    }
    this.#isSending = false;
    this.#changed();
  }

  #nextChange(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #changed(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
