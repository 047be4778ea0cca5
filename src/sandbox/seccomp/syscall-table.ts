/** Names and numbers of system calls on the two machines, and how the kernel names the machines. */

import { SYSCALLS_AARCH64 } from "./syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "./syscalls-x86-64.ts";

/** A machine whose calls we filter. */
export type Arch = "x86_64" | "aarch64";

/** A call that at least one of the two machines has. */
export type SyscallName = keyof typeof SYSCALLS_X86_64 | keyof typeof SYSCALLS_AARCH64;

/** `seccomp_data.arch` of each machine: AUDIT_ARCH_* of <linux/audit.h>. */
export const AUDIT_ARCH: Readonly<Record<Arch, number>> = {
  x86_64: 0xc000003e,
  aarch64: 0xc00000b7,
};

const NUMBERS: Readonly<Record<Arch, Readonly<Record<string, number>>>> = {
  x86_64: SYSCALLS_X86_64,
  aarch64: SYSCALLS_AARCH64,
};

const NAMES: Readonly<Record<Arch, ReadonlyMap<number, SyscallName>>> = {
  x86_64: invert(SYSCALLS_X86_64),
  aarch64: invert(SYSCALLS_AARCH64),
};

/** Whether either machine has a call of this name. */
export function isSyscallName(name: string): name is SyscallName {
  return Object.hasOwn(SYSCALLS_X86_64, name) || Object.hasOwn(SYSCALLS_AARCH64, name);
}

/** Its number, or undefined where the machine has no such call. */
export function syscallNumber(name: SyscallName, arch: Arch): number | undefined {
  const numbers = NUMBERS[arch];
  return Object.hasOwn(numbers, name) ? numbers[name] : undefined;
}

/** The call's name, or undefined for a number that the table does not hold. */
export function syscallName(nr: number, arch: Arch): SyscallName | undefined {
  return NAMES[arch].get(nr);
}

/** The machine of `process.arch`, or undefined for one that the engine does not run on. */
export function archOf(processArch: string): Arch | undefined {
  if (processArch === "x64") return "x86_64";
  return processArch === "arm64" ? "aarch64" : undefined;
}

function invert(numbers: Readonly<Record<string, number>>): ReadonlyMap<number, SyscallName> {
  return new Map(Object.entries(numbers).map(([name, nr]) => [nr, name as SyscallName]));
}
