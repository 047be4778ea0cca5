/** The last bytes of a stream, in memory that does not grow with the stream. */

/** Keeps the tail of what is added. */
export class Tail {
  readonly #bytesMax: number;
  #parts: Uint8Array[] = [];
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  add(bytes: Uint8Array): void {
    this.#parts.push(bytes);
    this.#bytes += bytes.length;
    // Joined now and then, so that many small parts cost no more than their bytes.
    if (this.#bytes > 2 * this.#bytesMax || this.#parts.length > 4096) this.#join();
  }

  /** What is kept. */
  take(): Uint8Array {
    this.#join();
    return this.#parts[0] ?? new Uint8Array();
  }

  #join(): void {
    const all = Buffer.concat(this.#parts, this.#bytes);
    const kept = Uint8Array.from(all.subarray(Math.max(0, all.length - this.#bytesMax)));
    this.#parts = [kept];
    this.#bytes = kept.length;
  }
}
