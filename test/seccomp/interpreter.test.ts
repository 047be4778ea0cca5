// The interpreter that the proofs rest on: it must refuse what the kernel refuses.

import { describe, expect, test } from "bun:test";
import { decodeProgram, runProgram, SECCOMP_WORDS } from "./interpreter.ts";

function program(...instructions: (readonly [code: number, jt: number, jf: number, k: number])[]) {
  const bytes = new Uint8Array(8 * instructions.length);
  const view = new DataView(bytes.buffer);
  for (const [index, [code, jt, jf, k]] of instructions.entries()) {
    view.setUint16(8 * index, code, true);
    view.setUint8(8 * index + 2, jt);
    view.setUint8(8 * index + 3, jf);
    view.setUint32(8 * index + 4, k, true);
  }
  return decodeProgram(bytes);
}

const words = new Uint32Array(SECCOMP_WORDS);
words[4] = 0x80000001;

describe("runProgram()", () => {
  const answer = (k: number) => [0x06, 0, 0, k] as const;

  test.each([
    { title: "equal", code: 0x15, k: 0x80000001, expected: 1 },
    { title: "not equal", code: 0x15, k: 1, expected: 2 },
    { title: "at least, unsigned", code: 0x35, k: 0x80000001, expected: 1 },
    { title: "less", code: 0x35, k: 0x80000002, expected: 2 },
    { title: "greater, unsigned", code: 0x25, k: 0x7fffffff, expected: 1 },
    { title: "a bit", code: 0x45, k: 0x80000000, expected: 1 },
    { title: "no bit", code: 0x45, k: 0x7ffffffe, expected: 2 },
  ])("branches on $title", ({ code, k, expected }) => {
    const run = runProgram(program([0x20, 0, 0, 16], [code, 0, 1, k], answer(1), answer(2)), words);
    expect(run).toEqual({ verdict: expected, steps: 3 });
  });

  test("jumps and masks", () => {
    const run = runProgram(
      program(
        [0x20, 0, 0, 16],
        [0x54, 0, 0, 0xf],
        [0x05, 0, 0, 1],
        answer(9),
        [0x15, 0, 1, 1],
        answer(1),
        answer(2),
      ),
      words,
    );
    expect(run.verdict).toBe(1);
  });

  test.each([
    { title: "an unknown code", instruction: [0x07, 0, 0, 0] as const },
    { title: "an odd load", instruction: [0x20, 0, 0, 2] as const },
    { title: "a load past the end", instruction: [0x20, 0, 0, 64] as const },
    { title: "a jump past the end", instruction: [0x05, 0, 0, 1] as const },
  ])("refuses $title", ({ instruction }) => {
    expect(() => runProgram(program(instruction, answer(0)), words)).toThrow();
  });

  test("refuses a program without end, of half an instruction, or too long", () => {
    expect(() => runProgram(program([0x20, 0, 0, 0]), words)).toThrow("ran off the end");
    expect(() => decodeProgram(new Uint8Array(0))).toThrow();
    expect(() => decodeProgram(new Uint8Array(12))).toThrow();
    expect(() => decodeProgram(new Uint8Array(8 * 4097))).toThrow();
  });
});
