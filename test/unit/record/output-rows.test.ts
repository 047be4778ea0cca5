import { describe, expect, test } from "bun:test";
import {
  codePointCut,
  type OutputRow,
  outputRow,
  type RowBounds,
  RowCutter,
} from "../../../src/record/output-rows.ts";
import { randomBytes, randomChunks, randomFrom } from "./random.ts";

function bytesOf(rows: readonly OutputRow[]): Buffer {
  return Buffer.concat(rows.map(({ data, encoding }) => Buffer.from(data, encoding ?? "utf8")));
}

/** All rows of chunks, a row being closed after each chunk where `close` says so. */
function cut(chunks: Iterable<Uint8Array>, bounds: RowBounds, close: () => boolean): OutputRow[] {
  const cutter = new RowCutter(bounds);
  const rows: OutputRow[] = [];
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
      expect(outputRow(text.subarray(0, at)).encoding).toBeUndefined();
      expect(outputRow(text.subarray(at)).encoding).toBeUndefined();
    }
  });

  test("does not wait for a rest of what is no UTF-8", () => {
    for (const bytes of [[0x80], [0xff], [0xc0], [0xf5, 0x80], [0x80, 0x80, 0x80, 0x80]]) {
      expect(codePointCut(Uint8Array.from(bytes), bytes.length)).toBe(bytes.length);
    }
  });
});

describe("outputRow()", () => {
  test("keeps a byte order mark and NUL", () => {
    expect(outputRow(Buffer.from("\ufeffa\0"))).toEqual({ data: "\ufeffa\0", bytes: 5 });
  });

  test("is base64 for bytes that are no UTF-8, surrogates in UTF-8 among them", () => {
    for (const bytes of [[0xff], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xe2, 0x82]]) {
      const row = outputRow(Uint8Array.from(bytes));
      expect(row.encoding).toBe("base64");
      expect(bytesOf([row])).toEqual(Buffer.from(bytes));
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
      expect(bytesOf(rows)).toEqual(Buffer.from(bytes));
      for (const row of rows) expect(row.bytes).toBeLessThanOrEqual(bounds.rowBytesMax);
      // Beyond the bound of rows only full ones are made, which a code point may leave 3 bytes short.
      const late = rows.slice(bounds.rowsMax, -2);
      for (const row of late) expect(row.bytes).toBeGreaterThanOrEqual(bounds.rowBytesMax - 3);
    },
  );

  test.each(Array.from({ length: 50 }, (_, seed) => [seed]))(
    "makes no base64 of text, however it is cut (seed %d)",
    (seed) => {
      const random = randomFrom(seed);
      const text = Buffer.from("aé€😀\u{10ffff}\0\ufeff".repeat(50));
      const bounds = { rowBytesMax: 4 + random(20), rowsMax: 10_000 };
      const rows = cut(randomChunks(random, text, 7), bounds, () => random(2) === 0);
      expect(rows.filter(({ encoding }) => encoding !== undefined)).toEqual([]);
      expect(rows.map(({ data }) => data).join("")).toBe(text.toString());
    },
  );

  test("makes rows of nothing only at the end, once it has made its number", () => {
    const cutter = new RowCutter({ rowBytesMax: 8, rowsMax: 2 });
    const given = (text: string) => [...cutter.push(Buffer.from(text)), cutter.close()?.data];
    expect(given("a")).toEqual(["a"]);
    expect(given("b")).toEqual(["b"]);
    expect(given("c")).toEqual([undefined]);
    expect(cutter.isOpen).toBe(false);
    expect(cutter.push(Buffer.from("defghij"))).toEqual([{ data: "cdefghij", bytes: 8 }]);
    cutter.push(Buffer.from("k"));
    expect(cutter.end()).toEqual([{ data: "k", bytes: 1 }]);
  });

  test("holds back half a code point until the rest comes, or the end", () => {
    const euro = Buffer.from("€");
    const cutter = new RowCutter();
    cutter.push(euro.subarray(0, 2));
    expect([cutter.isOpen, cutter.close()]).toEqual([false, null]);
    cutter.push(euro.subarray(2));
    expect(cutter.close()).toEqual({ data: "€", bytes: 3 });
    cutter.push(Buffer.concat([Buffer.from("a"), euro.subarray(0, 1)]));
    expect(cutter.end().map(({ encoding }) => encoding)).toEqual([undefined, "base64"]);
  });
});
