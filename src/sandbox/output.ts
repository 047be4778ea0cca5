/**
 * Reads one output stream of an exec until every writer is gone: keeps what the limit allows, says
 * once that the rest is cut, and goes on reading so that the program does not block.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { nextTurn } from "../core/turn.ts";
import type { OutputChannel } from "../provider/contract.ts";
import type { NoticeQueue } from "./notice-queue.ts";

/** Bytes read before the event loop gets its turn: a stream that is always ready starves it. */
const YIELD_BYTES = 128 * 1024;
/** Pauses while nothing comes of what is dropped: the first, and the longest. */
const DROP_PAUSE_MS_LEAST = 1;
const DROP_PAUSE_MS_MOST = 16;
/**
 * After the exec has ended: how often a stream is looked at, and how often in a row it must have been
 * silent before writers outside of it are no longer awaited.
 */
export const QUIET_LOOK_MS = 50;
export const QUIET_LOOKS = 2;

/** Where the bytes come from. */
export interface ByteReader {
  read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array<ArrayBuffer> | undefined }>;
  cancel(): Promise<void>;
}

/** What a stream needs. */
export interface OutputOptions {
  readonly channel: OutputChannel;
  readonly reader: ByteReader;
  /** Called once, when nothing more is read. */
  onEnd(): void;
  /**
   * Reads what is there and forgets it, for the time after the limit: bytes, 0 at the end, null when
   * nothing is there yet. Without it the reader goes on, at the price of its garbage.
   */
  drain?(): number | null;
  /**
   * Whether bytes, or the end, are there to be read. Where the process was starved of CPU, timers come
   * before what has been there for long: silence is then no sign of anything.
   */
  isReadable?(): boolean;
  readonly limitBytes: number;
  readonly queue: NoticeQueue;
  /** Called once, when the first byte is dropped. */
  onTruncated(): void;
}

/** One stream that is being read. */
export class OutputStream {
  readonly #options: OutputOptions;
  readonly #reader: ByteReader;
  #totalBytes = 0;
  #isDropping = false;
  #isStopped = false;
  #isEnded = false;
  /** Nothing has come yet, and nothing is being handed on. */
  #isWaiting = false;
  #quiet: ReturnType<typeof setInterval> | null = null;
  /** Resolves at the end of the stream. */
  readonly done: Promise<void>;

  constructor(options: OutputOptions) {
    this.#options = options;
    this.#reader = options.reader;
    this.done = this.#run();
  }

  /** Bytes that the program wrote, dropped ones included. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /** Everything of the exec is dead: what still holds the pipe, if anything, is not waited for. */
  finishSoon(): void {
    if (this.#quiet !== null || this.#isEnded) return;
    let seen = this.#totalBytes;
    let looks = 0;
    this.#quiet = setInterval(() => {
      const isQuiet = seen === this.#totalBytes && this.#isWaiting;
      looks = isQuiet && this.#options.isReadable?.() !== true ? looks + 1 : 0;
      seen = this.#totalBytes;
      if (looks === QUIET_LOOKS) this.stop();
    }, QUIET_LOOK_MS);
  }

  /** Stops reading. */
  stop(): void {
    this.#isStopped = true;
    if (this.#quiet !== null) clearInterval(this.#quiet);
    // The pending read then resolves as done; a stream that has ended already is no error.
    this.#reader.cancel().catch(() => undefined);
  }

  async #run(): Promise<void> {
    try {
      await this.#read();
      if (this.#isDropping) await this.#drop();
    } finally {
      this.#isEnded = true;
      if (this.#quiet !== null) clearInterval(this.#quiet);
      this.#options.onEnd();
    }
  }

  /** Until the end of the stream, or until the rest need only be dropped. */
  async #read(): Promise<void> {
    let sinceYield = 0;
    for (;;) {
      this.#isWaiting = true;
      const { done, value } = await this.#reader.read();
      this.#isWaiting = false;
      if (done || value === undefined) return;
      // Of a chunk that its reader has taken nothing is left, not even its length.
      sinceYield += value.length;
      await this.#take(value);
      if (this.#isDropping && this.#options.drain !== undefined) {
        await this.#reader.cancel();
        return;
      }
      if (sinceYield < YIELD_BYTES) continue;
      sinceYield = 0;
      await nextTurn();
    }
  }

  async #drop(): Promise<void> {
    let pauseMs = DROP_PAUSE_MS_LEAST;
    while (!this.#isStopped) {
      const count = this.#options.drain?.() ?? null;
      if (count === 0) return;
      if (count === null) {
        this.#isWaiting = true;
        await sleep(pauseMs);
        this.#isWaiting = false;
        pauseMs = Math.min(pauseMs * 2, DROP_PAUSE_MS_MOST);
      } else {
        this.#totalBytes += count;
        pauseMs = DROP_PAUSE_MS_LEAST;
        await nextTurn();
      }
    }
  }

  async #take(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const { channel, limitBytes, queue } = this.#options;
    const room = Math.max(0, limitBytes - this.#totalBytes);
    const isWithin = bytes.length <= room;
    this.#totalBytes += bytes.length;
    if (room > 0) await queue.output(channel, compact(bytes.subarray(0, room)));
    if (isWithin || this.#isDropping) return;
    this.#isDropping = true;
    queue.push({ type: "truncated", channel, limitBytes });
    this.#options.onTruncated();
  }
}

/** A small piece of a large read must not keep all of its memory. */
function compact(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return bytes.length * 2 < bytes.buffer.byteLength ? bytes.slice() : bytes;
}
