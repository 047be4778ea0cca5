/** Giving way to the event loop. */

/** Resolves in its next turn, after whatever waits for input and timers. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Turns of which each is one caller's alone, first come, first served. */
export class OwnTurns {
  readonly #queued: (() => void)[] = [];

  /** Resolves in a turn that no other caller of this queue resolves in. */
  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#queued.push(resolve);
      if (this.#queued.length === 1) setImmediate(() => this.#resolveOne());
    });
  }

  #resolveOne(): void {
    this.#queued.shift()?.();
    if (this.#queued.length > 0) setImmediate(() => this.#resolveOne());
  }
}

const launches = new OwnTurns();

/**
 * A turn for what launches: it blocks for a millisecond or two, and several in one turn would be felt
 * by every other client.
 */
export function ownTurn(): Promise<void> {
  return launches.next();
}

/** Longest that a loop over hostile names may hold the event loop. */
const SHARE_MS = 4;

/** The time that one loop may take of a turn. */
export class TurnShare {
  #sinceMs = performance.now();

  /** Call it once for each step: gives way when the share is used up. */
  async spend(): Promise<void> {
    if (performance.now() - this.#sinceMs < SHARE_MS) return;
    await nextTurn();
    this.#sinceMs = performance.now();
  }
}
