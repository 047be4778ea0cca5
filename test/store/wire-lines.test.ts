import { expect, test } from "bun:test";
import { fromWireLines, NO_LINES, toWireLines } from "../../src/store/wire-lines.ts";

test("lines come back as they were, whatever they hold and wherever they begin", () => {
  const lines = ["", "{}", "\u2028\r\ud800", "🦊"].map((line, index) => ({
    seq: 7 + 3 * index,
    line,
  }));
  for (let count = 0; count <= lines.length; count += 1) {
    const some = lines.slice(0, count);
    expect(fromWireLines(structuredClone(toWireLines(some)))).toEqual(some);
  }
  expect(fromWireLines(NO_LINES)).toEqual([]);
});

test("a line with a newline would be two: it is refused", () => {
  expect(() => fromWireLines(toWireLines([{ seq: 1, line: "a\nb" }]))).toThrow("BUG(cprg)");
});
