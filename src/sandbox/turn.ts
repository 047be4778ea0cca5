/** Giving way to the event loop. */

/** Resolves in its next turn, after whatever waits for input and timers. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
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
