/**
 * Cuts one stream of program output into rows: bounded in bytes and in number, cut between code
 * points, base64 where the bytes are no UTF-8. Knows no time and no log.
 */

import { OUTPUT_ROW_BYTES_MAX, OUTPUT_ROWS_MAX } from "../core/event.ts";

/** One row of output. */
export interface OutputRow {
  /** Text, or base64 where `encoding` says so. */
  readonly data: string;
  readonly encoding?: "base64";
  /** How many bytes of output it holds. */
  readonly bytes: number;
}

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

/** `ignoreBOM` keeps a byte order mark, which the decoder drops otherwise. */
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

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

/** A row of bytes, without loss. */
export function outputRow(bytes: Uint8Array): OutputRow {
  try {
    return { data: strictDecoder.decode(bytes), bytes: bytes.length };
  } catch {
    // Not UTF-8, which is the program's right: the row carries the bytes in base64.
    return { data: Buffer.from(bytes).toString("base64"), encoding: "base64", bytes: bytes.length };
  }
}

/** Collects the bytes of one stream and gives them back as rows. Holds at most one row. */
export class RowCutter {
  readonly #bounds: RowBounds;
  #buffer: Uint8Array | null = null;
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
  push(bytes: Uint8Array): OutputRow[] {
    this.#buffer ??= new Uint8Array(this.#bounds.rowBytesMax);
    const rows: OutputRow[] = [];
    for (let offset = 0; offset < bytes.length; ) {
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
  close(): OutputRow | null {
    if (!this.isOpen || this.#buffer === null) return null;
    return this.#take(codePointCut(this.#buffer, this.#length));
  }

  /** Ends the stream: whatever is left. */
  end(): OutputRow[] {
    const rows: OutputRow[] = [];
    if (this.#buffer === null) return rows;
    const whole = codePointCut(this.#buffer, this.#length);
    if (whole > 0) rows.push(this.#take(whole));
    if (this.#length > 0) rows.push(this.#take(this.#length));
    return rows;
  }

  #take(length: number): OutputRow {
    const buffer = this.#buffer ?? new Uint8Array();
    const row = outputRow(buffer.subarray(0, length));
    buffer.copyWithin(0, length, this.#length);
    this.#length -= length;
    this.#rows += 1;
    return row;
  }
}
