/** Giving way to the event loop. */

/** Resolves in its next turn, after whatever waits for input and timers. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
