/**
 * How hostile JavaScript is written: what every such program begins with, and numbers of system
 * calls for the machine that it runs on. It runs on the executable itself, with no file of ours.
 */

import { archOf, type SyscallName, syscallNumber } from "../sandbox/seccomp/syscall-table.ts";
import { type HostileProgram, READY } from "./attack.ts";

/** The machine that attacks run on; null: the engine does not run here either. */
export const ARCH = archOf(process.arch) ?? null;

/** The number of a call; one that no kernel has where the machine lacks it. */
export function nr(name: SyscallName): number {
  const UNKNOWN_CALL = 0xffff;
  return (ARCH === null ? undefined : syscallNumber(name, ARCH)) ?? UNKNOWN_CALL;
}

/**
 * `host` is the line of JSON that comes first on standard input: run-attack.ts writes it. `released` waits for its end.
 * `call` makes a system call past every library and returns its result or -errno: libc is taken
 * from inside the sandbox, by the names that glibc and musl give it.
 */
const PRELUDE = `
const fs = process.getBuiltinModule("node:fs");
const readLine = () => {
  const byte = Buffer.alloc(1);
  let line = "";
  while (fs.readSync(0, byte, 0, 1, null) === 1 && byte[0] !== 10) line += byte.toString("latin1");
  return line;
};
const host = JSON.parse(Buffer.from(readLine(), "latin1").toString() || "{}");
const say = (text) => fs.writeSync(1, text + "\\n");
const released = () => { say(${JSON.stringify(READY)}); readLine(); };
const report = (value) => say("REPORT " + JSON.stringify(value));
const { exit } = process;
const attempt = (act) => { try { act(); return "done"; } catch (error) { return error.code ?? String(error); } };
let native;
const libc = () => {
  if (native) return native;
  const ffi = process.getBuiltinModule("bun:ffi");
  let failure;
  const types = {
    syscall: { args: Array(7).fill("i64"), returns: "i64" },
    __errno_location: { args: [], returns: "ptr" },
  };
  for (const name of ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"]) {
    try { native = { ffi, ...ffi.dlopen(name, types).symbols }; return native; } catch (error) { failure ??= error; }
  }
  throw new Error("no libc inside: " + failure);
};
const call = (nr, ...args) => {
  const { ffi, syscall, __errno_location } = libc();
  const result = Number(syscall(nr, ...args, ...Array(6 - args.length).fill(0)));
  return result === -1 ? -ffi.read.i32(__errno_location(), 0) : result;
};
const address = (bytes) => libc().ffi.ptr(bytes);
`;

/** A program in JavaScript. */
export function javascript(
  code: string,
  options: Omit<HostileProgram, "language" | "code"> = {},
): HostileProgram {
  return { language: "javascript", code: `${PRELUDE}${code}\n`, ...options };
}

/** A program for /bin/sh: it reads the host's line with `read`, as everybody must. */
export function shell(
  code: string,
  options: Omit<HostileProgram, "language" | "code"> = {},
): HostileProgram {
  return { language: "sh", code: `read line\n${code}\n`, ...options };
}
