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

/** Longest that those who share a turn take of it before the next one waits for another. */
const SHARED_MS = 2;

/**
 * Turns that callers share while there is time in them. Whoever comes later has a turn alone: one of
 * each party in turn, and of one party's first come, first served. For work that others send: they
 * send it in bursts, and one's burst is not to be another's wait.
 */
export class SharedTurns {
  /** Those who wait, by party, the party whose turn is next first. */
  readonly #queues = new Map<string, (() => void)[]>();
  #sinceMs: number | null = null;

  /** Resolves when the caller may go on; null when that is at once. */
  enter(party: string): Promise<void> | null {
    if (this.#queues.size === 0 && this.#hasTime()) return null;
    return new Promise((resolve) => {
      if (this.#queues.size === 0) setImmediate(() => this.#resolveOne());
      const queue = this.#queues.get(party) ?? [];
      queue.push(resolve);
      this.#queues.set(party, queue);
    });
  }

  #resolveOne(): void {
    for (const [party, queue] of this.#queues) {
      queue.shift()?.();
      this.#queues.delete(party);
      if (queue.length > 0) this.#queues.set(party, queue);
      break;
    }
    if (this.#queues.size > 0) setImmediate(() => this.#resolveOne());
  }

  #hasTime(): boolean {
    const nowMs = performance.now();
    if (this.#sinceMs === null) {
      this.#sinceMs = nowMs;
      setImmediate(() => {
        this.#sinceMs = null;
      });
    }
    return nowMs - this.#sinceMs < SHARED_MS;
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
