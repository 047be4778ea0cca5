/**
 * Classic BPF as seccomp(2) runs it: instructions, and the bytes of `struct sock_filter`
 * (<linux/filter.h>). Both machines are little endian.
 */

import { assert } from "../../core/errors.ts";

/** BPF_MAXINSNS of <linux/bpf_common.h>: the kernel refuses longer programs. */
export const INSTRUCTIONS_MAX = 4096;

/** sizeof(struct sock_filter). */
export const INSTRUCTION_BYTES = 8;

/** Farthest a conditional jump reaches; `JUMP` reaches any place. */
export const BRANCH_MAX = 255;

/** Operation codes: class, size or condition, source. */
export const OP = {
  /** A = the 32-bit word of seccomp_data at k. */
  load: 0x20,
  /** Skips k instructions. */
  jump: 0x05,
  /** A == k, A >= k (unsigned), (A & k) != 0: skips jt instructions, else jf. */
  ifEqual: 0x15,
  ifAtLeast: 0x35,
  ifAnyBit: 0x45,
  /** Ends with verdict k. */
  answer: 0x06,
} as const;

/** Offsets in struct seccomp_data (<linux/seccomp.h>). */
export const OFFSET = { nr: 0, arch: 4, instructionPointer: 8, args: 16 } as const;

/** SECCOMP_RET_* of <linux/seccomp.h>; `errno` takes the value in its low 16 bits. */
export const VERDICT = {
  killProcess: 0x8000_0000,
  errno: 0x0005_0000,
  notify: 0x7fc0_0000,
  allow: 0x7fff_0000,
} as const;

/** One instruction. */
export interface Instruction {
  readonly code: number;
  readonly jt: number;
  readonly jf: number;
  readonly k: number;
}

/** An instruction that does not branch. */
export function plain(code: number, k: number): Instruction {
  return { code, jt: 0, jf: 0, k };
}

/** `code` decides with k between two blocks, neither of which may run off its end. */
export function branch(
  [code, k]: readonly [code: number, k: number],
  { yes, no }: { readonly yes: readonly Instruction[]; readonly no: readonly Instruction[] },
): Instruction[] {
  return no.length <= BRANCH_MAX
    ? [{ code, jt: no.length, jf: 0, k }, ...no, ...yes]
    : [{ code, jt: 0, jf: 1, k }, plain(OP.jump, no.length), ...no, ...yes];
}

/** The bytes of a program, as `struct sock_fprog.filter` takes them. */
export function encode(program: readonly Instruction[]): Uint8Array {
  assert(program.length <= INSTRUCTIONS_MAX, `a filter of ${program.length} instructions`);
  const bytes = new Uint8Array(program.length * INSTRUCTION_BYTES);
  const view = new DataView(bytes.buffer);
  for (const [index, { code, jt, jf, k }] of program.entries()) {
    const at = index * INSTRUCTION_BYTES;
    view.setUint16(at, code, true);
    view.setUint8(at + 2, jt);
    view.setUint8(at + 3, jf);
    view.setUint32(at + 4, k, true);
  }
  return bytes;
}
