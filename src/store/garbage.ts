/**
 * What passes through a thread as text leaves garbage of several times its size, and the runtime
 * lets a heap grow by more than a flood of output may cost before it collects. So the flood pays for
 * collections itself: some milliseconds of the thread for so many bytes, and none without a flood.
 */

/** Bytes of text after which a thread collects. */
const COLLECT_EVERY_BYTES = 2 * 1024 * 1024;

/** Counts what passes through one thread. */
export class GarbageCount {
  #bytes = 0;

  /** Call it with the size of each text that is done with. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < COLLECT_EVERY_BYTES) return;
    this.#bytes = 0;
    // Forced: one that is only asked for comes later than a flood makes the next garbage.
    Bun.gc(true);
  }
}
