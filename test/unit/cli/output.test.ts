import { expect, test } from "bun:test";
import {
  formatBytes,
  formatDuration,
  paintFor,
  printable,
  table,
} from "../../../src/cli/output.ts";
import { memoryTerminal } from "./memory-terminal.ts";

const plain = paintFor(memoryTerminal().stdout, {});
const terminalSink = { ...memoryTerminal().stdout, isTerminal: true };

test("paintFor() colours on a terminal only, and not with NO_COLOR or a dumb one", () => {
  expect(plain("red", "x")).toBe("x");
  expect(paintFor(terminalSink, {})("red", "x")).toBe("\x1b[31mx\x1b[0m");
  expect(paintFor(terminalSink, { NO_COLOR: "1" })("red", "x")).toBe("x");
  expect(paintFor(terminalSink, { NO_COLOR: "" })("red", "x")).not.toBe("x");
  expect(paintFor(terminalSink, { TERM: "dumb" })("red", "x")).toBe("x");
});

test("table() aligns columns, wide characters and colours too, without blanks at the end", () => {
  const rows = [
    ["a", { text: "long value", colour: "green" as const }, "x"],
    ["日本", "b", ""],
  ];
  expect(table(["ONE", "TWO", "THREE"], rows, plain)).toBe(
    "ONE   TWO         THREE\na     long value  x\n日本  b\n",
  );
  expect(Bun.stripANSI(table(["ONE", "TWO", "THREE"], rows, paintFor(terminalSink, {})))).toBe(
    table(["ONE", "TWO", "THREE"], rows, plain),
  );
});

test("printable() leaves nothing that drives a terminal", () => {
  expect(printable("a\x1b[2Jb\r\n\x9b\u202ec\x7f")).toBe("a\\x1b[2Jb\\x0d\\x0a\\x9b\\x202ec\\x7f");
  expect(printable("äöü 日本 \u{1f600}")).toBe("äöü 日本 \u{1f600}");
  expect(table(["A"], [["\x1b[31m"]], plain)).toBe("A\n\\x1b[31m\n");
});

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1.0 KiB"],
  [1536, "1.5 KiB"],
  [5 * 1024 ** 3, "5.0 GiB"],
])("formatBytes(%d) is %s", (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

test.each([
  [0, "0 ms"],
  [999.4, "999 ms"],
  [1500, "1.5 s"],
  [245_000, "4 min 5 s"],
])("formatDuration(%d) is %s", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});
