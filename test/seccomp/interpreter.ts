/**
 * Runs a classic BPF program over a `struct seccomp_data`, as strictly as the kernel checks one
 * (seccomp_check_filter, bpf_check_classic): an unknown code, a load that is not an aligned word of
 * the structure, or a jump past the end is an error.
 */

/** Words of struct seccomp_data: nr, arch, two of the instruction pointer, two for each argument. */
export type SeccompWords = Uint32Array;

/** 64 bytes of <linux/seccomp.h>'s struct seccomp_data. */
export const SECCOMP_WORDS = 16;

/** BPF_MAXINSNS, written out again here so that it does not come from what is tested. */
const PROGRAM_MAX = 4096;

/** A decoded program. */
export interface BpfProgram {
  readonly codes: Uint16Array;
  readonly jumps: Uint8Array;
  readonly constants: Uint32Array;
}

/** What one run gives. */
export interface BpfRun {
  /** SECCOMP_RET_*, unsigned. */
  readonly verdict: number;
  /** Instructions that ran. */
  readonly steps: number;
}

/** Reads `struct sock_filter[]`. */
export function decodeProgram(bytes: Uint8Array): BpfProgram {
  const count = bytes.length / 8;
  if (!Number.isInteger(count) || count === 0 || count > PROGRAM_MAX) {
    throw new Error(`a program of ${bytes.length} bytes`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const codes = new Uint16Array(count);
  const jumps = new Uint8Array(2 * count);
  const constants = new Uint32Array(count);
  for (let index = 0; index < count; index++) {
    codes[index] = view.getUint16(8 * index, true);
    jumps[2 * index] = view.getUint8(8 * index + 2);
    jumps[2 * index + 1] = view.getUint8(8 * index + 3);
    constants[index] = view.getUint32(8 * index + 4, true);
  }
  return { codes, jumps, constants };
}

/** Runs it. */
export function runProgram(program: BpfProgram, words: SeccompWords): BpfRun {
  const { codes, jumps, constants } = program;
  let a = 0;
  let at = 0;
  for (let steps = 1; ; steps++) {
    const k = constants[at];
    if (k === undefined) throw new Error(`ran off the end, to ${at}`);
    let skip = 0;
    switch (codes[at]) {
      case 0x20: // BPF_LD | BPF_W | BPF_ABS
        if (k % 4 !== 0 || k >= 4 * SECCOMP_WORDS) throw new Error(`load of ${k} at ${at}`);
        a = words[k / 4] ?? 0;
        break;
      case 0x54: // BPF_ALU | BPF_AND | BPF_K
        a = (a & k) >>> 0;
        break;
      case 0x05: // BPF_JMP | BPF_JA
        skip = k;
        break;
      case 0x15: // BPF_JMP | BPF_JEQ | BPF_K
        skip = jump(jumps, at, a === k);
        break;
      case 0x25: // BPF_JMP | BPF_JGT | BPF_K
        skip = jump(jumps, at, a > k);
        break;
      case 0x35: // BPF_JMP | BPF_JGE | BPF_K
        skip = jump(jumps, at, a >= k);
        break;
      case 0x45: // BPF_JMP | BPF_JSET | BPF_K
        skip = jump(jumps, at, (a & k) !== 0);
        break;
      case 0x06: // BPF_RET | BPF_K
        return { verdict: k, steps };
      default:
        throw new Error(`code 0x${codes[at]?.toString(16)} at ${at}`);
    }
    at += 1 + skip;
  }
}

function jump(jumps: Uint8Array, at: number, holds: boolean): number {
  return jumps[2 * at + (holds ? 0 : 1)] ?? 0;
}
