/** Pseudo-random calls that do no harm where the filter lets them through. */

import type { Arch, SyscallName } from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import type { KernelCall } from "./kernel-calls.ts";

/**
 * Not made: what ends or forks the process that reports, signals others, makes objects that outlive
 * the process, or changes how other processes run.
 */
const EXCLUDED: ReadonlySet<string> = new Set<SyscallName>([
  "exit",
  "exit_group",
  "fork",
  "vfork",
  "clone",
  "pause",
  "kill",
  "tkill",
  "tgkill",
  "rt_sigqueueinfo",
  "rt_tgsigqueueinfo",
  "shmget",
  "semget",
  "msgget",
  "setpriority",
  "ioprio_set",
]);

/** Descriptors and pids that nobody has, pointers that lead nowhere, and what rules look at. */
const VALUES: readonly bigint[] = [
  0x3fffffffn,
  0xffffffffffffffffn,
  0xffff800000000010n,
  0x800000003fffffffn,
  0x100003fffn,
];

/** Values that the rules of these calls look at, with which the calls do no harm either. */
const SPECIAL: Readonly<Partial<Record<SyscallName, readonly bigint[]>>> = {
  socket: [1n, 2n, 0x100000001n, 10n, 16n],
  socketpair: [1n, 2n, 0x100000001n],
  personality: [0n, 0xffffffffn, 0x40000n, 0x1ffffffffn],
  prlimit64: [0n, 1n, 0x100000000n],
  io_uring_setup: [64n, 256n, 8n, 0x100000100n],
  prctl: [22n, 0x100000016n, 15n],
};
const SPECIAL_SECOND: Readonly<Partial<Record<SyscallName, readonly bigint[]>>> = {
  ioctl: [0x5412n, 0x100005412n, 0x541cn, 0x5413n, 0xf000000000005423n],
};

/** The calls; the same every time. */
export function makeRandomCalls(count: number, arch: Arch): KernelCall[] {
  const next = makeRandom(20_260_901);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(next() * from.length)] as T;
  const known = Object.entries(arch === "x86_64" ? SYSCALLS_X86_64 : SYSCALLS_AARCH64).filter(
    ([name]) => !EXCLUDED.has(name),
  );
  const special = known.filter(([name]) => name in SPECIAL || name in SPECIAL_SECOND);
  return Array.from({ length: count }, () => {
    const [name, nr] = next() < 0.2 ? pick(special) : pick(known);
    const args = Array.from({ length: 6 }, () => pick(VALUES));
    const first = SPECIAL[name as SyscallName];
    const second = SPECIAL_SECOND[name as SyscallName];
    if (first !== undefined) args[0] = pick(first);
    if (second !== undefined) args[1] = pick(second);
    return { nr, args };
  });
}

/** mulberry32: uniform in [0, 1). */
function makeRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
