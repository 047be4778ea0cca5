/** Giving way to the event loop. */

/** Resolves in its next turn, after whatever waits for input and timers. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Those who wait for a turn of their own. */
const queued: (() => void)[] = [];

/**
 * Resolves in a turn that nobody else resolves in, first come, first served: for work that blocks
 * for a millisecond or two, of which several in one turn would be felt by every other client.
 */
export function ownTurn(): Promise<void> {
  return new Promise((resolve) => {
    queued.push(resolve);
    if (queued.length === 1) setImmediate(resolveOne);
  });
}

function resolveOne(): void {
  queued.shift()?.();
  if (queued.length > 0) setImmediate(resolveOne);
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
