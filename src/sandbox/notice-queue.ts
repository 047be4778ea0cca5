/**
 * What an exec reports, in order, to one reader. Output waits for room, so that a program whose
 * output nobody reads stops in its write; everything else is rare and bounded by its kind.
 */

import { CprgError } from "../core/errors.ts";
import type { ExecNotice, OutputChannel } from "../provider/contract.ts";

/** Most bytes and chunks of output that wait for the reader. */
export const QUEUED_BYTES_MAX = 256 * 1024;
const QUEUED_CHUNKS_MAX = 64;

/** A queue with one reader. */
export class NoticeQueue implements AsyncIterable<ExecNotice> {
  #notices: ExecNotice[] = [];
  #bytes = 0;
  #chunks = 0;
  #isEnded = false;
  #isTaken = false;
  #wakeReader: (() => void) | null = null;
  #wakeWriters: (() => void)[] = [];

  /** Adds output; resolves when there is room for more. */
  async output(channel: OutputChannel, bytes: Uint8Array): Promise<void> {
    if (this.#isEnded) return;
    this.#bytes += bytes.length;
    this.#chunks += 1;
    this.#add({ type: "output", channel, bytes });
    while (!this.#isEnded && !this.#hasRoom()) {
      await new Promise<void>((resolve) => this.#wakeWriters.push(resolve));
    }
  }

  /** Adds anything else. A usage notice that nobody has read is replaced by the next. */
  push(notice: Exclude<ExecNotice, { type: "output" }>): void {
    if (this.#isEnded) return;
    const last = this.#notices.at(-1);
    if (notice.type === "usage" && last?.type === "usage") this.#notices.pop();
    this.#add(notice);
  }

  /** Nothing more comes; what is queued can still be read. */
  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  /** Ends it and drops what nobody has read. */
  discard(): void {
    this.#notices = [];
    this.#bytes = 0;
    this.#chunks = 0;
    this.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ExecNotice> {
    if (this.#isTaken) {
      throw new CprgError("failed_precondition", "Cannot read an exec's notices twice");
    }
    this.#isTaken = true;
    for (;;) {
      const notice = this.#notices.shift();
      if (notice !== undefined) {
        this.#took(notice);
        yield notice;
      } else if (this.#isEnded) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wakeReader = resolve;
        });
      }
    }
  }

  #hasRoom(): boolean {
    return this.#bytes < QUEUED_BYTES_MAX && this.#chunks < QUEUED_CHUNKS_MAX;
  }

  #add(notice: ExecNotice): void {
    this.#notices.push(notice);
    this.#wakeReader?.();
    this.#wakeReader = null;
  }

  #took(notice: ExecNotice): void {
    if (notice.type !== "output") return;
    this.#bytes -= notice.bytes.length;
    this.#chunks -= 1;
    if (this.#hasRoom()) this.#wakeBlocked();
  }

  #wake(): void {
    this.#wakeReader?.();
    this.#wakeReader = null;
    this.#wakeBlocked();
  }

  #wakeBlocked(): void {
    for (const wake of this.#wakeWriters.splice(0)) wake();
  }
}
