/** Waiting for the end of a task, without polling. */

import { WakeUps } from "./wake-ups.ts";

/** Those who wait, by task; as many as there are callers. */
export class TaskWaits {
  readonly #waiting = new Map<string, { readonly wakeUps: WakeUps; count: number }>();

  /**
   * Looks until there is something to see: at once, and after each change of the task.
   *
   * @param look gives undefined for "not yet"
   * @throws what `look` throws; the signal's reason
   */
  async until<T>(
    id: string,
    look: () => Promise<T | undefined>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const entry = this.#waiting.get(id) ?? { wakeUps: new WakeUps(), count: 0 };
    this.#waiting.set(id, entry);
    entry.count += 1;
    try {
      for (;;) {
        signal?.throwIfAborted();
        // Joined before the look: a change in between is not missed.
        const changed = entry.wakeUps.wait(signal);
        const seen = await look();
        if (seen !== undefined) return seen;
        await changed;
      }
    } finally {
      entry.count -= 1;
      if (entry.count === 0) this.#waiting.delete(id);
      // The last look left nobody waiting; its listeners on signals go.
      if (entry.count === 0) entry.wakeUps.wake();
    }
  }

  /** A task has changed. */
  wake(id: string): void {
    this.#waiting.get(id)?.wakeUps.wake();
  }

  /** All look again: nothing will change any more. */
  wakeAll(): void {
    for (const { wakeUps } of this.#waiting.values()) wakeUps.wake();
  }
}
