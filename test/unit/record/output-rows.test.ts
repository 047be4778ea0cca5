import { describe, expect, test } from "bun:test";
import { codePointCut, type RowBounds, RowCutter } from "../../../src/record/output-rows.ts";
import { randomBytes, randomChunks, randomFrom } from "./random.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of a row, null where it is no UTF-8. */
function textOf(row: Uint8Array): string | null {
  try {
    return utf8.decode(row);
  } catch {
    return null;
  }
}

/** All rows of chunks, a row being closed after each chunk where `close` says so. */
function cut(chunks: Iterable<Uint8Array>, bounds: RowBounds, close: () => boolean): Uint8Array[] {
  const cutter = new RowCutter(bounds);
  const rows: Uint8Array[] = [];
  for (const chunk of chunks) {
    const copy = Uint8Array.from(chunk);
    rows.push(...cutter.push(copy));
    // The cutter keeps no reference to what it was given.
    copy.fill(0x58);
    const row = close() ? cutter.close() : null;
    if (row !== null) rows.push(row);
  }
  rows.push(...cutter.end());
  expect(cutter.end()).toEqual([]);
  return rows;
}

describe("codePointCut()", () => {
  test("never cuts a code point, at any offset of text", () => {
    const text = Buffer.from("aé€😀\u{10ffff}z");
    for (let end = 0; end <= text.length; end++) {
      const at = codePointCut(text, end);
      expect(end - at).toBeLessThanOrEqual(3);
      expect(textOf(text.subarray(0, at))).not.toBeNull();
      expect(textOf(text.subarray(at))).not.toBeNull();
    }
  });

  test("does not wait for a rest of what is no UTF-8", () => {
    for (const bytes of [[0x80], [0xff], [0xc0], [0xf5, 0x80], [0x80, 0x80, 0x80, 0x80]]) {
      expect(codePointCut(Uint8Array.from(bytes), bytes.length)).toBe(bytes.length);
    }
  });
});

describe("RowCutter", () => {
  test.each(Array.from({ length: 300 }, (_, seed) => [seed]))(
    "gives every byte back, within the bounds (seed %d)",
    (seed) => {
      const random = randomFrom(seed);
      const bytes = randomBytes(random, random(2000));
      const bounds = { rowBytesMax: 4 + random(60), rowsMax: 1 + random(50) };
      const rows = cut(randomChunks(random, bytes, 100), bounds, () => random(3) === 0);
      expect(Buffer.concat(rows)).toEqual(Buffer.from(bytes));
      for (const row of rows) expect(row.length).toBeLessThanOrEqual(bounds.rowBytesMax);
      // Each row is its receiver's own, who may take its buffer away.
      expect(new Set(rows.map(({ buffer }) => buffer)).size).toBe(rows.length);
      // Beyond the bound of rows only full ones are made, which a code point may leave 3 bytes short.
      const late = rows.slice(bounds.rowsMax, -2);
      for (const row of late) expect(row.length).toBeGreaterThanOrEqual(bounds.rowBytesMax - 3);
    },
  );

  test.each(Array.from({ length: 50 }, (_, seed) => [seed]))(
    "makes rows of text of text, however it is cut (seed %d)",
    (seed) => {
      const random = randomFrom(seed);
      const text = Buffer.from("aé€😀\u{10ffff}\0\ufeff".repeat(50));
      const bounds = { rowBytesMax: 4 + random(20), rowsMax: 10_000 };
      const rows = cut(randomChunks(random, text, 7), bounds, () => random(2) === 0);
      const texts = rows.map(textOf);
      expect(texts).not.toContain(null);
      expect(texts.join("")).toBe(text.toString());
    },
  );

  test("makes rows of nothing only at the end, once it has made its number", () => {
    const cutter = new RowCutter({ rowBytesMax: 8, rowsMax: 2 });
    const given = (text: string) => {
      const rows = cutter.push(Buffer.from(text)).map(textOf);
      const row = cutter.close();
      return row === null ? rows : [...rows, textOf(row)];
    };
    expect(given("a")).toEqual(["a"]);
    expect(given("b")).toEqual(["b"]);
    expect(given("c")).toEqual([]);
    expect(cutter.isOpen).toBe(false);
    expect(cutter.push(Buffer.from("defghij")).map(textOf)).toEqual(["cdefghij"]);
    cutter.push(Buffer.from("k"));
    expect(cutter.end().map(textOf)).toEqual(["k"]);
  });

  test("holds back half a code point until the rest comes, or the end", () => {
    const euro = Buffer.from("€");
    const cutter = new RowCutter();
    cutter.push(euro.subarray(0, 2));
    expect([cutter.isOpen, cutter.close()]).toEqual([false, null]);
    cutter.push(euro.subarray(2));
    expect(textOf(cutter.close() ?? new Uint8Array())).toBe("€");
    cutter.push(Buffer.concat([Buffer.from("a"), euro.subarray(0, 1)]));
    expect(cutter.end().map(textOf)).toEqual(["a", null]);
  });
});
