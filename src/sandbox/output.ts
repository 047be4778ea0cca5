/**
 * Reads one output stream of an exec until every writer is gone: keeps what the limit allows, says
 * once that the rest is cut, and goes on reading so that the program does not block.
 */

import type { OutputChannel } from "../provider/contract.ts";
import type { NoticeQueue } from "./notice-queue.ts";

/** Bytes read before the event loop gets its turn: a stream that is always ready starves it. */
const YIELD_BYTES = 128 * 1024;
/** After the exec has ended: longest silence before writers outside of it are no longer awaited. */
const QUIET_MS = 100;

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
    if (this.#quiet !== null) return;
    let seen = this.#totalBytes;
    this.#quiet = setInterval(() => {
      if (seen === this.#totalBytes && this.#isReading) this.stop();
      seen = this.#totalBytes;
    }, QUIET_MS);
  }

  /** Stops reading. */
  stop(): void {
    if (this.#quiet !== null) clearInterval(this.#quiet);
    // The pending read then resolves as done; a stream that has ended already is no error.
    this.#reader.cancel().catch(() => undefined);
  }

  #isReading = false;

  async #run(): Promise<void> {
    let sinceYield = 0;
    try {
      for (;;) {
        this.#isReading = true;
        const { done, value } = await this.#reader.read();
        this.#isReading = false;
        if (done || value === undefined) return;
        await this.#take(value);
        sinceYield += value.length;
        if (sinceYield < YIELD_BYTES) continue;
        sinceYield = 0;
        await new Promise<void>((resolve) => setImmediate(resolve));
      }
    } finally {
      if (this.#quiet !== null) clearInterval(this.#quiet);
      this.#options.onEnd();
    }
  }

  async #take(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const { channel, limitBytes, queue } = this.#options;
    const room = Math.max(0, limitBytes - this.#totalBytes);
    this.#totalBytes += bytes.length;
    if (room > 0) await queue.output(channel, compact(bytes.subarray(0, room)));
    if (bytes.length <= room || this.#isDropping) return;
    this.#isDropping = true;
    queue.push({ type: "truncated", channel, limitBytes });
    this.#options.onTruncated();
  }
}

/** A small piece of a large read must not keep all of its memory. */
function compact(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return bytes.length * 2 < bytes.buffer.byteLength ? bytes.slice() : bytes;
}
