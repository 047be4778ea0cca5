// Random values from a seed, so that a run that fails can be run again.

/** A generator of values. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0, below 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  /** From 0 to max, both possible. */
  whole(max: number): number {
    return Math.floor(this.next() * (max + 1));
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.whole(values.length - 1)];
    if (value === undefined) throw new Error("nothing to pick from");
    return value;
  }
}
