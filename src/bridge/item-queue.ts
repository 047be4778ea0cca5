/**
 * Items that have arrived for one reader. With credit the sender stops by itself; without it the
 * whole stream is held back while a reader is behind, for a while.
 */

import { assert, type CprgError } from "../core/errors.ts";
import type { startTimer } from "../core/timer.ts";
import { CREDIT_BYTES, GRANT_BYTES, STALL_MS_MAX, UNCREDITED_BYTES_MAX } from "./limits.ts";
import { itemCost } from "./send-credit.ts";

/** How a queue is bounded, and whom it tells. */
export interface ItemQueueOptions {
  readonly isCredited: boolean;
  readonly startTimer: typeof startTimer;
  /** With credit: so many bytes have been consumed. */
  readonly grant: (bytes: number) => void;
  /** Without credit: the reader has held the stream back for too long. */
  readonly stalled: () => void;
}

interface Waiter {
  readonly resolve: (payload: Uint8Array | undefined) => void;
  readonly reject: (error: CprgError) => void;
}

/** The receiving half of one direction of items. */
export class ItemQueue {
  readonly #options: ItemQueueOptions;
  #items: Uint8Array[] = [];
  #bytes = 0;
  /** What the sender may still send, by our count. */
  #balance = CREDIT_BYTES;
  /** Cost of the item that the reader has, and of those that it is done with. */
  #handed = 0;
  #consumed = 0;
  #end: { readonly error: CprgError | undefined } | undefined;
  #waiter: Waiter | undefined;
  #drained: (() => void) | undefined;

  constructor(options: ItemQueueOptions) {
    this.#options = options;
  }

  /** Whether one more item is more than the sender was granted. */
  get isBeyondCredit(): boolean {
    return this.#options.isCredited && this.#balance <= 0;
  }

  /** Adds an item. Gives a promise when nothing more should be read before it resolves. */
  push(payload: Uint8Array): Promise<void> | undefined {
    if (this.#end !== undefined) return undefined;
    const cost = itemCost(payload);
    this.#balance -= cost;
    if (this.#waiter !== undefined) {
      this.#handed = cost;
      this.#settle((waiter) => waiter.resolve(payload));
      return undefined;
    }
    this.#items.push(payload);
    this.#bytes += cost;
    const isOver = !this.#options.isCredited && this.#bytes > UNCREDITED_BYTES_MAX;
    return isOver ? this.#wait() : undefined;
  }

  /** The sender has ended: what has arrived is still given to the reader. */
  end(error?: CprgError): void {
    if (this.#end !== undefined) return;
    this.#end = { error };
    this.#drained?.();
    this.#settle((waiter) => (error ? waiter.reject(error) : waiter.resolve(undefined)));
  }

  /** The reader is to stop: what has arrived is dropped. */
  fail(error: CprgError): void {
    this.#items = [];
    this.#bytes = 0;
    this.#end = undefined;
    this.end(error);
  }

  /** The next item; undefined at the end; rejects with the error that ended it. One at a time. */
  next(): Promise<Uint8Array | undefined> {
    assert(this.#waiter === undefined, "items have one reader");
    this.#consume();
    const payload = this.#items.shift();
    if (payload !== undefined) {
      this.#handed = itemCost(payload);
      this.#bytes -= this.#handed;
      if (this.#bytes <= UNCREDITED_BYTES_MAX / 2) this.#drained?.();
      return Promise.resolve(payload);
    }
    if (this.#end !== undefined) {
      const { error } = this.#end;
      return error ? Promise.reject(error) : Promise.resolve(undefined);
    }
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject };
    });
  }

  /** The item that was handed over is done with, now that the reader asks for the next. */
  #consume(): void {
    this.#consumed += this.#handed;
    this.#handed = 0;
    if (!this.#options.isCredited || this.#end !== undefined || this.#consumed < GRANT_BYTES)
      return;
    this.#balance += this.#consumed;
    this.#options.grant(this.#consumed);
    this.#consumed = 0;
  }

  #settle(action: (waiter: Waiter) => void): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    if (waiter !== undefined) action(waiter);
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.startTimer(STALL_MS_MAX, () => this.#options.stalled());
      this.#drained = () => {
        timer.clear();
        this.#drained = undefined;
        resolve();
      };
    });
  }
}
