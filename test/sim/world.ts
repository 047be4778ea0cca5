// Two muxes in a world that a seed decides about: when a frame arrives, when time passes, who reads,
// and when the connection stalls or breaks. No real timer and no real socket is in it, so a seed
// gives the same run each time.

import type { Frame, FrameStream } from "../../src/bridge/contract.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { startTimer } from "../../src/core/timer.ts";
import { seeded } from "../helpers/seeded.ts";

/** Time that passes when it is told to. */
export class FakeTime {
  #now = 0;
  readonly #timers = new Map<number, { at: number; action: () => void }>();
  #made = 0;

  readonly startTimer: typeof startTimer = (delayMs, action) => {
    this.#made += 1;
    const key = this.#made;
    this.#timers.set(key, { at: this.#now + Math.max(0, delayMs), action });
    return { clear: () => void this.#timers.delete(key) };
  };

  get waiting(): number {
    return this.#timers.size;
  }

  advance(byMs: number): void {
    this.#now += byMs;
    const due = [...this.#timers].filter(([, { at }]) => at <= this.#now);
    due.sort(([a, first], [b, second]) => first.at - second.at || a - b);
    for (const [key, { action }] of due) if (this.#timers.delete(key)) action();
  }
}

/** One direction: frames wait until they are delivered; the sender waits for room. */
class Lane {
  readonly #frames: Frame[] = [];
  readonly #inbox: Frame[] = [];
  #end: { error: CprgError | undefined } | undefined;
  #isEndDelivered = false;
  #wakeReader: () => void = () => undefined;
  #room: (() => void)[] = [];

  readonly #capacity: number;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  async put(frame: Frame): Promise<void> {
    if (this.#end !== undefined) throw new CprgError("unavailable", "closed");
    this.#frames.push(frame);
    while (this.#frames.length > this.#capacity && this.#end === undefined) {
      await new Promise<void>((resolve) => this.#room.push(resolve));
    }
  }

  /** Lets the oldest frame, or then the end, arrive. */
  deliver(): boolean {
    const frame = this.#frames.shift();
    if (frame !== undefined) this.#inbox.push(frame);
    else if (this.#end !== undefined && !this.#isEndDelivered) this.#isEndDelivered = true;
    else return false;
    this.#wake();
    return true;
  }

  /** An end arrives after the frames; a break takes those that are under way with it. */
  end(error: CprgError | undefined, { isBreak }: { isBreak: boolean }): void {
    this.#end ??= { error };
    if (isBreak) {
      this.#frames.length = 0;
      this.#isEndDelivered = true;
    }
    this.#wake();
  }

  async *read(): AsyncGenerator<Frame, void, undefined> {
    for (;;) {
      const frame = this.#inbox.shift();
      if (frame !== undefined) yield frame;
      else if (this.#isEndDelivered) {
        if (this.#end?.error !== undefined) throw this.#end.error;
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wakeReader = resolve;
        });
      }
    }
  }

  #wake(): void {
    this.#wakeReader();
    const room = this.#room;
    this.#room = [];
    for (const resolve of room) resolve();
  }
}

/** A connection between two sides. */
export class FakeConnection {
  readonly ends: readonly [FrameStream, FrameStream];
  readonly #lanes: readonly [Lane, Lane];
  isFrozen = false;

  constructor(capacity: number) {
    const [there, back] = [new Lane(capacity), new Lane(capacity)];
    this.#lanes = [there, back];
    const end = (out: Lane, into: Lane): FrameStream => ({
      frames: into.read(),
      send: (frame) => out.put(frame),
      close: (error) => {
        out.end(error, { isBreak: false });
        into.end(error, { isBreak: true });
      },
    });
    this.ends = [end(there, back), end(back, there)];
  }

  /** Lets one frame arrive on a side; false if none is under way, or nothing passes. */
  deliver(side: 0 | 1): boolean {
    return !this.isFrozen && this.#lanes[side].deliver();
  }

  cut(): void {
    const error = new CprgError("unavailable", "cut");
    for (const lane of this.#lanes) lane.end(error, { isBreak: true });
  }
}

/** Chance, from a seed. */
export class Chance {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seeded(seed);
  }

  below(most: number): number {
    return Math.floor(this.#random() * most);
  }

  is(probability: number): boolean {
    return this.#random() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}

/** Lets everything run that waits for nothing but its turn. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 40; turn += 1) await Promise.resolve();
}
