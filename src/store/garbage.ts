/**
 * What passes through a thread as text leaves garbage of several times its size, and the runtime
 * lets a heap grow by more than a flood of output may cost before it collects. So the flood asks for
 * a collection itself, beside the thread's work.
 */

/** Bytes of text after which the collector is asked. */
const COLLECT_EVERY_BYTES = 4 * 1024 * 1024;

/** Counts what passes through one thread. */
export class GarbageCount {
  #bytes = 0;

  /** Call it with the size of each text that is done with. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < COLLECT_EVERY_BYTES) return;
    this.#bytes = 0;
    // Not forced: a forced one stops the thread until the whole heap is looked through.
    Bun.gc(false);
  }
}
