/** Waiting for a job's terminal status, without polling. */

/** Those who wait, by job. Bounded by the requests that wait. */
export class TerminalWaits {
  readonly #waiting = new Map<string, Set<() => void>>();

  /** How many wait. */
  get size(): number {
    let size = 0;
    for (const { size: ofJob } of this.#waiting.values()) size += ofJob;
    return size;
  }

  /**
   * Registers before the caller looks at the job, so that an end in between is not missed.
   *
   * @param id of the job
   * @param bounds `waitMs` relative; the signal ends the wait early
   */
  open(
    id: string,
    bounds: { readonly waitMs: number; readonly signal?: AbortSignal },
  ): TerminalWait {
    const { promise, resolve } = Promise.withResolvers<void>();
    const set = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, set.add(resolve));
    const timer = setTimeout(resolve, bounds.waitMs);
    const onAbort = (): void => resolve();
    bounds.signal?.addEventListener("abort", onAbort);
    if (bounds.signal?.aborted) resolve();
    const close = (): void => {
      clearTimeout(timer);
      bounds.signal?.removeEventListener("abort", onAbort);
      set.delete(resolve);
      if (set.size === 0 && this.#waiting.get(id) === set) this.#waiting.delete(id);
    };
    return { ended: promise, [Symbol.dispose]: close };
  }

  /** Wakes everybody: nothing will end here any more. */
  wakeAll(): void {
    for (const id of this.#waiting.keys()) this.wake(id);
  }

  /** Wakes everybody who waits for a job. */
  wake(id: string): void {
    for (const resolve of this.#waiting.get(id) ?? []) resolve();
  }
}

/** One wait; it is closed when it goes out of scope. */
export interface TerminalWait extends Disposable {
  /** Resolves at the end of the job, of the time or of the signal: the caller looks which. */
  readonly ended: Promise<void>;
}
