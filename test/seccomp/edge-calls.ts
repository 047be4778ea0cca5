/** Calls at the edges: every number that could mean something, with arguments that could. */

import { SECCOMP_WORDS, type SeccompWords } from "./interpreter.ts";

/** Numbers that a machine could have. */
const NATIVE_NUMBERS: readonly number[] = Array.from({ length: 1024 }, (_, nr) => nr);

/** The same with the bit of x32, and those around the borders of the number space. */
const FOREIGN_NUMBERS: readonly number[] = [
  ...Array.from({ length: 1024 }, (_, nr) => nr + 0x40000000),
  0x3fffffff,
  0x7fffffff,
  0x80000000,
  0x80000001,
  0xbfffffff,
  0xc0000000,
  0xfffffffe,
  0xffffffff,
];

/** All of them. */
export const EDGE_NUMBERS: readonly number[] = [...NATIVE_NUMBERS, ...FOREIGN_NUMBERS];

/** Low halves of arguments. */
export const EDGE_VALUES: readonly number[] = [
  // small numbers: AF_UNSPEC to AF_VSOCK and past the last family, signals, ring sizes, options
  ...Array.from({ length: 66 }, (_, value) => value),
  // each bit, and its neighbours: clone flags, personalities
  ...Array.from({ length: 32 }, (_, bit) => 2 ** bit),
  ...Array.from({ length: 32 }, (_, bit) => 2 ** bit - 1),
  // clone: fork, vfork, pthread_create, posix_spawn, and with a namespace each
  0x01200011,
  0x00004111,
  0x003d0f00,
  0x10000011,
  0x20000011,
  0x7e020000,
  0x7e020091,
  0x81fdff7f,
  // ioctl: TIOCSTI, TIOCLINUX, TIOCSETD and their neighbours; prctl names that are large
  0x5411,
  0x5412,
  0x5413,
  0x541b,
  0x541c,
  0x541d,
  0x5422,
  0x5423,
  0x5424,
  0x53564d41,
  // socket types and personalities that programs use
  0x0008,
  0x20000,
  0x40000,
  0x400000,
  0x80001,
  255,
  256,
  257,
  511,
  512,
  0xfffffffe,
  0xffffffff,
];

/** Fewer, for numbers that are refused before an argument matters. */
const FOREIGN_VALUES = [0, 1, 2, 0x5412, 0x10000000, 0xffffffff];

/** High halves: none, one, sign, all. A filter that looked at them could be walked around. */
const HIGH_HALVES = [0, 1, 0x80000000, 0xffffffff];

/** `seccomp_data.arch` of x86_64, i386, aarch64, arm, big-endian aarch64, riscv64, none and all. */
export const AUDIT_ARCHES = [
  0xc000003e, 0x40000003, 0xc00000b7, 0x40000028, 0x800000b7, 0xc00000f3, 0, 0xffffffff,
];

/** Fills `words` with one call after another and yields it; the same object each time. */
export function* edgeCalls(auditArch: number): Generator<SeccompWords, void, void> {
  const words = new Uint32Array(SECCOMP_WORDS);
  for (const nr of EDGE_NUMBERS) {
    for (const low of nr < NATIVE_NUMBERS.length ? EDGE_VALUES : FOREIGN_VALUES) {
      for (const high of HIGH_HALVES) {
        // One argument at a time, and once all of them alike, to catch a look at the wrong one.
        for (const arg of [0, 1, 2, "all"] as const) {
          fillCall(words, { nr, auditArch, low, high, arg });
          yield words;
        }
      }
    }
  }
}

function fillCall(
  words: SeccompWords,
  call: {
    readonly nr: number;
    readonly auditArch: number;
    readonly low: number;
    readonly high: number;
    readonly arg: 0 | 1 | 2 | "all";
  },
): void {
  words.fill(0);
  words[0] = call.nr;
  words[1] = call.auditArch;
  words[2] = 0xdeadbeef;
  words[3] = 0x7fff;
  for (let arg = 0; arg < 6; arg++) {
    if (call.arg !== "all" && call.arg !== arg) continue;
    words[4 + 2 * arg] = call.low;
    words[5 + 2 * arg] = call.high;
  }
}

/** A call as a failed comparison prints it. */
export function describeCall(words: SeccompWords): string {
  const hex = (value: number | undefined): string => `0x${(value ?? 0).toString(16)}`;
  const args = [0, 1, 2, 3, 4, 5].map(
    (arg) => `${hex(words[5 + 2 * arg])}:${hex(words[4 + 2 * arg])}`,
  );
  return `nr ${words[0]} arch ${hex(words[1])} args ${args.join(" ")}`;
}
