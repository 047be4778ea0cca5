/** Cuts a byte stream into lines in bounded memory: only LF ends a line. */

const LF = 0x0a;

/** Splits chunks of any size into lines without their LF. */
export class LineSplitter {
  readonly #maxBytes: number;
  /** Start of a line whose end has not come; grows up to the bound and is used again. */
  #rest = new Uint8Array(0);
  #restBytes = 0;

  /** @param maxBytes longest line, without its LF */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Whether bytes came after the last LF. */
  get hasRest(): boolean {
    return this.#restBytes > 0;
  }

  /**
   * Lines that end in a chunk. They are valid until the next one is asked for. Stops with `null`
   * at a line that is longer than the bound, also when its end has not come yet.
   */
  *split(chunk: Uint8Array): Generator<Uint8Array | null, void, void> {
    let start = 0;
    while (start < chunk.length) {
      const found = chunk.indexOf(LF, start);
      const end = found === -1 ? chunk.length : found;
      if (this.#restBytes + end - start > this.#maxBytes) {
        yield null;
        return;
      }
      if (found === -1) {
        this.#keep(chunk.subarray(start));
        return;
      }
      yield this.#complete(chunk.subarray(start, end));
      start = end + 1;
    }
  }

  #complete(bytes: Uint8Array): Uint8Array {
    if (this.#restBytes === 0) return bytes;
    this.#keep(bytes);
    const line = this.#rest.subarray(0, this.#restBytes);
    this.#restBytes = 0;
    return line;
  }

  #keep(bytes: Uint8Array): void {
    const size = this.#restBytes + bytes.length;
    if (size > this.#rest.length) {
      const grown = new Uint8Array(Math.min(this.#maxBytes, Math.max(size, this.#rest.length * 2)));
      grown.set(this.#rest.subarray(0, this.#restBytes));
      this.#rest = grown;
    }
    this.#rest.set(bytes, this.#restBytes);
    this.#restBytes = size;
  }
}
