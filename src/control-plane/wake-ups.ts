/** Waiting for a change of something that is then looked at again. */

/** Who waits. */
export class WakeUps {
  readonly #waiting = new Set<() => void>();

  /** Resolves at the next change, or when the signal aborts. */
  wait(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal?.removeEventListener("abort", wake);
        this.#waiting.delete(wake);
        resolve();
      };
      signal?.addEventListener("abort", wake);
      this.#waiting.add(wake);
      if (signal?.aborted) wake();
    });
  }

  /** Something has changed. */
  wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}
