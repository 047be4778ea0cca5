/**
 * What passes through as text or small chunks leaves garbage of several times its size, and the runtime
 * lets a heap grow by more than a flood may cost before it collects. So a flood pays for collections
 * itself, so often by its bytes, and there are none without one.
 */

/** When garbage is collected. */
export interface GarbageOptions {
  /** Bytes after which it is. */
  readonly everyBytes: number;
  /**
   * Whether the thread waits for it: one that is only asked for comes later than a flood makes the next
   * garbage. Not for a thread that answers clients: it stands still for tens of milliseconds.
   */
  readonly isAwaited: boolean;
}

/** Counts what passes through. */
export class GarbageCount {
  readonly #options: GarbageOptions;
  #bytes = 0;

  constructor(options: GarbageOptions) {
    this.#options = options;
  }

  /** Call it with the size of what is done with. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < this.#options.everyBytes) return;
    this.#bytes = 0;
    // Node, which embedders use, pays by itself.
    if (typeof Bun !== "undefined") Bun.gc(this.#options.isAwaited);
  }
}
