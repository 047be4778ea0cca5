import { expect, test } from "bun:test";
import { eventOf } from "../../../src/core/output-text.ts";

function rowOf(bytes: Iterable<number>) {
  return eventOf({ kind: "stdout", bytes: Uint8Array.from(bytes) });
}

test("text keeps a byte order mark and NUL", () => {
  expect(rowOf(Buffer.from("\ufeffa\0"))).toEqual({ kind: "stdout", data: "\ufeffa\0" });
});

test("bytes that are no UTF-8 are base64, surrogates in UTF-8 among them", () => {
  for (const bytes of [[0xff], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xe2, 0x82]]) {
    expect(rowOf(bytes)).toEqual({
      kind: "stdout",
      data: Buffer.from(bytes).toString("base64"),
      encoding: "base64",
    });
  }
});

test("any other draft stays as it is", () => {
  const draft = { kind: "stdout", data: "x" } as const;
  expect(eventOf(draft)).toBe(draft);
});
