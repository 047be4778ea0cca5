/** Writes to an exec's standard input: a pipe that is never waited for on the event loop. */

import { closeSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import { nextTurn } from "../core/turn.ts";

const CHUNK_BYTES = 64 * 1024;
/** Written before the event loop gets its turn. */
const TURN_BYTES = 512 * 1024;
/** Pauses while the program does not read: the first, and the longest. */
const PAUSE_MS_LEAST = 1;
const PAUSE_MS_MOST = 50;

/** The write end of a pipe that does not block. */
export class InputPipe {
  readonly #fd: number;
  #isClosed = false;
  #last: Promise<void> = Promise.resolve();

  constructor(fd: number) {
    this.#fd = fd;
  }

  /**
   * Writes all bytes, after those of earlier calls; resolves when the kernel took them.
   *
   * @throws CprgError `failed_precondition` when the input is closed, by us or by the program
   */
  write(bytes: Uint8Array): Promise<void> {
    const written = this.#last.then(() => this.#writeAll(bytes));
    this.#last = written.catch(() => undefined);
    return written;
  }

  /** Closes it after what was written; idempotent. */
  close(): Promise<void> {
    this.#last = this.#last.then(() => this.abandon());
    return this.#last;
  }

  /** Closes it now; what is still to be written is not. */
  abandon(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closeSync(this.#fd);
  }

  /** Writes what fits at once, up to a bound, and returns the rest. */
  start(bytes: Uint8Array): Uint8Array {
    let at = 0;
    while (at < Math.min(bytes.length, TURN_BYTES)) {
      const count = this.#tryWrite(bytes.subarray(at, at + CHUNK_BYTES));
      if (count === 0) break;
      at += count;
    }
    return bytes.subarray(at);
  }

  async #writeAll(bytes: Uint8Array): Promise<void> {
    let rest = bytes;
    let pauseMs = PAUSE_MS_LEAST;
    for (;;) {
      const before = rest.length;
      rest = this.start(rest);
      if (rest.length === 0) return;
      if (rest.length < before) {
        pauseMs = PAUSE_MS_LEAST;
        await nextTurn();
      } else {
        await sleep(pauseMs);
        pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MOST);
      }
    }
  }

  #tryWrite(bytes: Uint8Array): number {
    if (this.#isClosed) throw inputClosed();
    try {
      return writeSync(this.#fd, bytes);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EAGAIN") return 0;
      throw inputClosed(error);
    }
  }
}

function inputClosed(cause?: unknown): CprgError {
  return new CprgError("failed_precondition", "Cannot write to standard input: it is closed", {
    reason: "INPUT_CLOSED",
    ...(cause === undefined ? {} : { cause }),
  });
}
