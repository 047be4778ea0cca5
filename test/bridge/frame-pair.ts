// Two ends of a stream of frames in memory: `send` resolves when the other end has room.

import type { Frame, FrameStream } from "../../src/bridge/contract.ts";
import { CprgError } from "../../src/core/errors.ts";

/** Frames that one direction holds. */
const WINDOW_FRAMES = 4;

/** One end, with what a test does to it from outside. */
export interface PairEnd extends FrameStream {
  /** The connection is gone: both ends see it. */
  cut(): void;
  /** Nothing is delivered to this end's reader until {@link thaw}. */
  freeze(): void;
  thaw(): void;
}

class Direction {
  readonly queue: Frame[] = [];
  isFrozen = false;
  #end: { error: CprgError | undefined } | undefined;
  #waiting: (() => void)[] = [];

  async put(frame: Frame): Promise<void> {
    if (this.#end !== undefined) throw this.#end.error ?? new CprgError("unavailable", "closed");
    this.queue.push(frame);
    this.wake();
    while (this.queue.length > WINDOW_FRAMES && this.#end === undefined) await this.#change();
  }

  end(error: CprgError | undefined): void {
    this.#end ??= { error };
    this.wake();
  }

  async *read(): AsyncGenerator<Frame, void, undefined> {
    for (;;) {
      const frame = this.isFrozen ? undefined : this.queue.shift();
      if (frame !== undefined) {
        this.wake();
        yield frame;
      } else if (this.#end !== undefined) {
        if (this.#end.error !== undefined) throw this.#end.error;
        return;
      } else await this.#change();
    }
  }

  wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** Two ends that are connected. */
export function framePair(): readonly [PairEnd, PairEnd] {
  const [there, back] = [new Direction(), new Direction()];
  const cut = (): void => {
    const error = new CprgError("unavailable", "cut");
    there.end(error);
    back.end(error);
  };
  const end = (out: Direction, into: Direction): PairEnd => ({
    frames: into.read(),
    send: (frame) => out.put(frame),
    close: (error) => {
      out.end(error);
      into.end(error);
    },
    cut,
    freeze: () => {
      into.isFrozen = true;
    },
    thaw: () => {
      into.isFrozen = false;
      into.wake();
    },
  });
  return [end(there, back), end(back, there)];
}
