/**
 * Who is in a hurry, and when whoever is not may go on. What is built ahead must not take the CPUs
 * and the event loop from the one who has just taken what was there.
 */

/** Longest that one is in a hurry: what takes longer does not notice its neighbours. */
export const RUSH_MS_MAX = 25;
/** Longest that others wait, however many are in a hurry. */
export const CALM_WAIT_MS_MAX = 100;

/** Counts those in a hurry. */
export class Rush {
  readonly #hurried = new Set<() => void>();
  readonly #waiting = new Set<() => void>();

  /** Somebody is in a hurry until the result is called, and {@link RUSH_MS_MAX} at most. */
  begin(): () => void {
    const end = (): void => {
      clearTimeout(timer);
      if (!this.#hurried.delete(end) || this.#hurried.size > 0) return;
      for (const resume of [...this.#waiting]) resume();
    };
    const timer = setTimeout(end, RUSH_MS_MAX);
    this.#hurried.add(end);
    return end;
  }

  /** Resolves when nobody is in a hurry, or after {@link CALM_WAIT_MS_MAX}. */
  calm(): Promise<void> {
    if (this.#hurried.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const resume = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(resume);
        resolve();
      };
      const timer = setTimeout(resume, CALM_WAIT_MS_MAX);
      this.#waiting.add(resume);
    });
  }
}
