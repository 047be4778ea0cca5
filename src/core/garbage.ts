/**
 * What passes through the Worker as text leaves garbage of several times its size, and the runtime
 * lets a heap grow by more than a flood of output may cost before it collects. So the flood pays for
 * collections itself: some milliseconds of the Worker for so many bytes, and none without a flood.
 * The main thread, which answers clients, has no such text: it hands bytes on.
 */

/** Bytes of text after which the Worker collects. */
const COLLECT_EVERY_BYTES = 1024 * 1024;

/** Counts what passes through. */
export class GarbageCount {
  #bytes = 0;

  /** Call it with the size of what is done with. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < COLLECT_EVERY_BYTES) return;
    this.#bytes = 0;
    // Forced: one that is only asked for comes later than a flood makes the next garbage.
    Bun.gc(true);
  }
}
