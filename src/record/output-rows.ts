/**
 * Cuts one stream of program output into rows: bounded in bytes and in number, cut between code
 * points where the bytes are UTF-8. Knows no time and no log.
 */

import { OUTPUT_ROW_BYTES_MAX, OUTPUT_ROWS_MAX } from "../core/event.ts";

/** Bounds of one stream's rows; tests make them small. */
export interface RowBounds {
  /** Most bytes of a row. */
  readonly rowBytesMax: number;
  /** Rows after which only full ones, and the last, are made. */
  readonly rowsMax: number;
}

/** The bounds of contracts.md. */
export const OUTPUT_BOUNDS: RowBounds = {
  rowBytesMax: OUTPUT_ROW_BYTES_MAX,
  rowsMax: OUTPUT_ROWS_MAX,
};

/**
 * Where to cut so that a code point which is not complete at `end` stays whole (RFC 3629 section 3).
 *
 * @returns `end`, or up to three bytes less
 */
export function codePointCut(bytes: Uint8Array, end: number): number {
  for (let back = 1; back <= 3 && back <= end; back++) {
    const byte = bytes[end - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    return sequenceLength(byte) > back ? end - back : end;
  }
  return end;
}

/** Bytes of the code point that a byte begins; 1 for what begins none. */
function sequenceLength(lead: number): number {
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 1;
}

/** Collects the bytes of one stream and gives them back as rows. Holds at most one row. */
export class RowCutter {
  readonly #bounds: RowBounds;
  #buffer: Uint8Array<ArrayBuffer> | null = null;
  #length = 0;
  #rows = 0;

  constructor(bounds: RowBounds = OUTPUT_BOUNDS) {
    this.#bounds = bounds;
  }

  /** Whether {@link close} would give a row now. */
  get isOpen(): boolean {
    return (
      this.#rows < this.#bounds.rowsMax &&
      this.#buffer !== null &&
      codePointCut(this.#buffer, this.#length) > 0
    );
  }

  /** Copies bytes in; returns the rows that they filled. */
  push(bytes: Uint8Array): Uint8Array<ArrayBuffer>[] {
    const rows: Uint8Array<ArrayBuffer>[] = [];
    for (let offset = 0; offset < bytes.length; ) {
      this.#buffer ??= new Uint8Array(this.#bounds.rowBytesMax);
      const room = this.#bounds.rowBytesMax - this.#length;
      const part = bytes.subarray(offset, offset + room);
      this.#buffer.set(part, this.#length);
      this.#length += part.length;
      offset += part.length;
      if (this.#length < this.#bounds.rowBytesMax) break;
      // A row smaller than one code point cannot keep it whole.
      rows.push(this.#take(codePointCut(this.#buffer, this.#length) || this.#length));
    }
    return rows;
  }

  /**
   * Ends the row that is being filled. A code point that is not complete stays for the next one.
   *
   * @returns null when there is nothing to give, or when the stream has had its number of rows
   */
  close(): Uint8Array<ArrayBuffer> | null {
    if (!this.isOpen || this.#buffer === null) return null;
    return this.#take(codePointCut(this.#buffer, this.#length));
  }

  /** Ends the stream: whatever is left. */
  end(): Uint8Array<ArrayBuffer>[] {
    const rows: Uint8Array<ArrayBuffer>[] = [];
    if (this.#buffer === null) return rows;
    const whole = codePointCut(this.#buffer, this.#length);
    if (whole > 0) rows.push(this.#take(whole));
    if (this.#length > 0) rows.push(this.#take(this.#length));
    return rows;
  }

  #take(length: number): Uint8Array<ArrayBuffer> {
    const buffer = this.#buffer ?? new Uint8Array();
    this.#rows += 1;
    if (length === buffer.length) {
      // A full row takes the buffer along, so that its bytes are copied no more.
      this.#buffer = null;
      this.#length = 0;
      return buffer;
    }
    const row = buffer.slice(0, length);
    buffer.copyWithin(0, length, this.#length);
    this.#length -= length;
    return row;
  }
}
