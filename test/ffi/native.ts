/**
 * Loads what `make ffi` builds, for the tests of this folder only: the product's own binding is
 * `src/sandbox/native.ts`.
 */
import { dlopen, FFIType, ptr } from "bun:ffi";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { arch, tmpdir } from "node:os";
import { dirname, join } from "node:path";

const root = join(import.meta.dir, "../..");
const directories = new Set<string>();

/** A directory that every id may enter. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "cprg-ffi-"));
  chmodSync(directory, 0o755);
  directories.add(directory);
  return directory;
}

/** To be called after all tests of a file: `bun test` runs no exit handlers. */
export function removeTemporaryDirectories(): void {
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
  directories.clear();
  scratchPath = undefined;
}

let scratchPath: string | undefined;

/** The host directory that new roots are mounted on. */
export function scratch(): string {
  scratchPath ??= temporaryDirectory();
  mkdirSync(join(scratchPath, "root"), { recursive: true });
  return join(scratchPath, "root");
}

/** Brings the build up to date, unless a ready one is named. */
function build(): { library: string; init: string } {
  const machine = { x64: "x86_64", arm64: "aarch64" }[arch() as string] ?? arch();
  const given = process.env["CPRG_FFI_BUILD"];
  const out = given ?? join(root, "dist/ffi", machine);
  if (given === undefined) {
    const made = spawnSync("make", ["-C", join(root, "ffi"), `OUT=${out}`], { encoding: "utf8" });
    if (made.status !== 0) {
      throw new Error(`make failed: ${made.stdout}${made.stderr}`);
    }
  }
  return { library: join(out, "libcprg.so"), init: join(out, "cprg-init") };
}

export const built = build();

/** For a process of its own that loads this module: it uses the same build. */
export const childEnv = { ...process.env, CPRG_FFI_BUILD: dirname(built.library) };

const { i32, u32, u64, ptr: pointer, cstring } = FFIType;

const cprg = dlopen(built.library, {
  cprg_abi: { args: [pointer], returns: i32 },
  cprg_memfd: { args: [cstring, pointer, u64], returns: i32 },
  cprg_launch: { args: [pointer, pointer, pointer], returns: i32 },
  cprg_launcher: { args: [pointer], returns: i32 },
  cprg_launch_later: { args: [i32, pointer], returns: i32 },
  cprg_launch_done: { args: [pointer], returns: i32 },
  cprg_launch_end: { args: [u64], returns: i32 },
  cprg_socketpair: { args: [pointer], returns: i32 },
  cprg_pipe: { args: [pointer, u32], returns: i32 },
  cprg_send: { args: [i32, pointer, u32, pointer, u32], returns: i32 },
  cprg_receive: { args: [i32, pointer, u32, pointer, u32, pointer], returns: i32 },
  cprg_reap: { args: [i32, pointer], returns: i32 },
  cprg_signal: { args: [i32, i32], returns: i32 },
  cprg_pidfd: { args: [i32], returns: i32 },
  cprg_lock: { args: [cstring], returns: i32 },
  cprg_statfs: { args: [i32, pointer], returns: i32 },
  cprg_open_within: { args: [i32, cstring, i32, u32], returns: i32 },
  cprg_open_beneath: { args: [i32, cstring, i32, u32], returns: i32 },
  cprg_read: { args: [i32, pointer, u32], returns: i32 },
  cprg_readable: { args: [i32], returns: i32 },
  cprg_harden: { args: [], returns: i32 },
  cprg_reduce: { args: [u64], returns: i32 },
  cprg_restart: { args: [pointer, u32, pointer, u32, pointer, u32], returns: i32 },
}).symbols;

export const native = cprg;

const libc = dlopen("libc.so.6", {
  poll: { args: [pointer, u64, i32], returns: i32 },
  prctl: { args: [i32, u64, u64, u64, u64], returns: i32 },
}).symbols;

export const prctl = libc.prctl;

const waitLimitMs = 20_000;

/** Blocks until the descriptor is readable, at its end, or (for a pidfd) its process has ended. */
export function waitReadable(fd: number): void {
  const request = new DataView(new ArrayBuffer(8));
  request.setInt32(0, fd, true);
  request.setInt16(4, 1, true);
  const ready = libc.poll(ptr(request), 1, waitLimitMs);
  if (ready !== 1) {
    throw new Error(`descriptor ${fd} not readable: ${ready}`);
  }
}

export function pair(make: (fds: Int32Array) => number): [number, number] {
  const fds = new Int32Array(2);
  const result = make(fds);
  if (result < 0) {
    throw new Error(`no pair of descriptors: ${result}`);
  }
  return [fds[0] ?? -1, fds[1] ?? -1];
}

export const pipe = (nonblock = 0): [number, number] =>
  pair((fds) => cprg.cprg_pipe(ptr(fds), nonblock));

export const socketpair = (): [number, number] => pair((fds) => cprg.cprg_socketpair(ptr(fds)));

/** 0 or -errno. */
export function send(socket: number, bytes: Uint8Array, fds: readonly number[] = []): number {
  const list = new Int32Array(Math.max(fds.length, 1));
  list.set(fds);
  return cprg.cprg_send(socket, ptr(bytes), bytes.byteLength, ptr(list), fds.length);
}

export interface Received {
  length: number;
  bytes: Uint8Array;
  fds: number[];
}

export function receive(socket: number, capacity = 4096, fdCapacity = 12): Received {
  const bytes = new Uint8Array(capacity);
  const fds = new Int32Array(12);
  const count = new Uint32Array(1);
  const length = cprg.cprg_receive(socket, ptr(bytes), capacity, ptr(fds), fdCapacity, ptr(count));
  return { length, bytes, fds: [...fds.subarray(0, count[0])] };
}

/** Reads to the end of a pipe, waiting for it. */
export function readAll(fd: number): Uint8Array {
  const chunks: Uint8Array[] = [];
  for (;;) {
    waitReadable(fd);
    const chunk = new Uint8Array(65536);
    const count = cprg.cprg_read(fd, ptr(chunk), chunk.byteLength);
    if (count === 0) {
      return Buffer.concat(chunks);
    }
    if (count > 0) {
      chunks.push(chunk.subarray(0, count));
    } else if (count !== -11) {
      throw new Error(`read: ${count}`);
    }
  }
}

export const nullFd = (): number => openSync("/dev/null", "r+");
