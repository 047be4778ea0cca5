/** Waiting for a change of something that is then looked at again. */

/** Who waits. */
export class WakeUps {
  #waiting: (() => void)[] = [];

  /** Resolves at the next change, or when the signal aborts. */
  wait(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      signal?.addEventListener("abort", wake);
      if (signal?.aborted) wake();
      else this.#waiting.push(wake);
    });
  }

  /** Something has changed. */
  wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
