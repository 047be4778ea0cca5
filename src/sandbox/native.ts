/**
 * The border to C, and the only importer of bun:ffi: loads libcprg.so and wraps each of its exports
 * in a typed function. bun:ffi checks nothing, so every argument is made here, every buffer lives
 * for the whole call (a launch's until it is done), and the library is never closed.
 */

import { dlopen } from "bun:ffi";
import { closeSync, mkdirSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { TerminalSize } from "../provider/contract.ts";
import { readEmbedded } from "./embedded.ts";
import { BOUNDS, checkAbi, LAUNCH, LAUNCH_JOB, SIZES } from "./layout.ts";
import { errnoName, stepError } from "./steps.ts";

const EAGAIN = 11;
/** Most that is drained in one call: it holds the event loop for some ten microseconds. */
const DRAIN_BYTES = 256 * 1024;

const SYMBOLS = {
  cprg_abi: { args: ["ptr"], returns: "i32" },
  cprg_memfd: { args: ["ptr", "ptr", "u64"], returns: "i32" },
  cprg_launcher: { args: ["ptr"], returns: "i32" },
  cprg_launch_later: { args: ["i32", "ptr"], returns: "i32" },
  cprg_launch_done: { args: ["ptr"], returns: "i32" },
  cprg_launch_end: { args: ["u64"], returns: "i32" },
  cprg_socketpair: { args: ["ptr"], returns: "i32" },
  cprg_pipe: { args: ["ptr", "u32"], returns: "i32" },
  cprg_send: { args: ["i32", "ptr", "u32", "ptr", "u32"], returns: "i32" },
  cprg_receive: { args: ["i32", "ptr", "u32", "ptr", "u32", "ptr"], returns: "i32" },
  cprg_reap: { args: ["i32", "ptr"], returns: "i32" },
  cprg_signal: { args: ["i32", "i32"], returns: "i32" },
  cprg_pidfd: { args: ["i32"], returns: "i32" },
  cprg_lock: { args: ["ptr"], returns: "i32" },
  cprg_statfs: { args: ["i32", "ptr"], returns: "i32" },
  cprg_open_beneath: { args: ["i32", "ptr", "i32", "u32"], returns: "i32" },
  cprg_open_within: { args: ["i32", "ptr", "i32", "u32"], returns: "i32" },
  cprg_read: { args: ["i32", "ptr", "u32"], returns: "i32" },
  cprg_readable: { args: ["i32"], returns: "i32" },
  cprg_terminal: { args: ["i32", "u32", "u32", "ptr"], returns: "i32" },
  cprg_resize: { args: ["i32", "u32", "u32"], returns: "i32" },
  cprg_harden: { args: [], returns: "i32" },
  cprg_reduce: { args: ["u64"], returns: "i32" },
  cprg_restart: { args: ["ptr", "u32", "ptr", "u32", "ptr", "u32"], returns: "i32" },
} as const;

type Library = ReturnType<typeof dlopen<typeof SYMBOLS>>["symbols"];

/** A call into the kernel that failed, by errno. */
export class NativeError extends Error {
  readonly call: string;
  readonly errno: number;

  constructor(call: string, errno: number) {
    super(`${call}: ${errnoName(errno)}`);
    this.call = call;
    this.errno = errno;
  }
}

/** What `launch` needs; descriptors stay the caller's, and open until the launch is done. */
export interface LaunchRequest {
  readonly map: number;
  readonly controlFd: number;
  readonly reportFd: number;
  /** A cgroup v2 directory for CLONE_INTO_CGROUP, or -1. */
  readonly cgroupDirFd: number;
  readonly cgroupFds: readonly number[];
  readonly uidInit: number;
  readonly uidProgram: number;
  readonly idInside: number;
}

/** Process 1, started. */
export interface Launched {
  readonly pid: number;
  readonly pidfd: number;
  /** For `launchEnd`, once it is ready or gone. */
  readonly arena: bigint;
}

/** A launch that the launcher's thread does. */
export interface Launching {
  /**
   * Process 1, or null while the launch is not done: LAUNCHED on the report pipe says when.
   *
   * @throws CprgError naming the step that failed
   */
  take(): Launched | null;
}

/** Sizes of a file system, in blocks and inodes. */
export interface FileSystemSpace {
  readonly blocks: number;
  readonly blocksFree: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

/** Descriptors of a terminal: our end twice, to read from and to write to, and the program's. */
export interface Terminal {
  readonly output: number;
  readonly input: number;
  readonly peer: number;
}

/** How process 1 ended. */
export interface Death {
  readonly code: number | null;
  readonly signal: number | null;
}

/** What a program that is started anew is given. */
export interface RestartRequest {
  /** In the format of /proc/self/cmdline. */
  readonly args: Uint8Array;
  /** In the format of /proc/self/environ. */
  readonly variables: Uint8Array;
  /** Descriptors that stay open besides 0, 1 and 2. */
  readonly fds: readonly number[];
}

/** Where native code is kept when memfds may not be executed. */
export interface NativeOptions {
  readonly dataDir: string;
  /** False: uses files in the data directory, as where the kernel forbids memfds. */
  readonly memfd?: boolean;
}

function encodeLaunch(view: DataView, request: LaunchRequest & { readonly initFd: number }): void {
  const set = (at: number, value: number): void => view.setInt32(at, value, true);
  set(LAUNCH.size, SIZES.launch);
  set(LAUNCH.map, request.map);
  set(LAUNCH.initFd, request.initFd);
  set(LAUNCH.controlFd, request.controlFd);
  set(LAUNCH.reportFd, request.reportFd);
  set(LAUNCH.cgroupDirFd, request.cgroupDirFd);
  set(LAUNCH.cgroupCount, request.cgroupFds.length);
  request.cgroupFds.forEach((fd, index) => {
    set(LAUNCH.cgroupFds + 4 * index, fd);
  });
  for (const at of [LAUNCH.uidInit, LAUNCH.gidInit]) set(at, request.uidInit);
  for (const at of [LAUNCH.uidProgram, LAUNCH.gidProgram]) set(at, request.uidProgram);
  set(LAUNCH.idInside, request.idInside);
}

/** Asks the thread that launches: one for the process, from the first launch on. */
let launcher: number | null = null;

function startLauncher(library: Library): number {
  const error = new Int32Array(SIZES.error / 4);
  const fd = library.cprg_launcher(error);
  if (fd < 0) throw startError([...error], -fd);
  return fd;
}

/** @param fields of `struct cprg_error` */
function startError([step = 0, index = 0, errno]: readonly number[], fallback: number): CprgError {
  return stepError({ step, index, errno: errno ?? fallback }, { op: "start a sandbox" });
}

/** @throws CprgError naming the step that failed */
function launchedBy(job: DataView): Launched {
  const number = (at: number): number => job.getInt32(at, true);
  const result = number(LAUNCH_JOB.result);
  if (result < 0) {
    throw startError(
      [0, 4, 8].map((at) => number(LAUNCH_JOB.error + at)),
      -result,
    );
  }
  return {
    pid: number(LAUNCH_JOB.launched),
    pidfd: number(LAUNCH_JOB.launched + 4),
    arena: job.getBigUint64(LAUNCH_JOB.launched + 8, true),
  };
}

/** The shim. One for each process; it is never unloaded. */
export class Native {
  readonly #library: Library;
  readonly #initFd: number;
  readonly #monotonicNs: () => bigint;
  /** Memory that the thread works on. */
  readonly #jobs = new Set<Uint8Array>();
  /** Where drained bytes go; never looked at. */
  readonly #drained = new Uint8Array(DRAIN_BYTES);

  private constructor(library: Library, initFd: number, monotonicNs: () => bigint) {
    this.#library = library;
    this.#initFd = initFd;
    this.#monotonicNs = monotonicNs;
  }

  /** Loads the shim. @throws CprgError where it cannot be loaded, with the fix */
  static async load(options: NativeOptions): Promise<Native> {
    const embedded = await readEmbedded();
    const libc = openLibc();
    const isMemfd = options.memfd !== false;
    const library =
      (isMemfd ? openFromMemfd(libc, embedded.library) : null) ??
      openFromFile(options.dataDir, embedded.library);
    const answer = new Uint32Array(1 + Object.keys(SIZES).length);
    library.cprg_abi(answer);
    checkAbi(answer);
    const initFd =
      (isMemfd ? openInitMemfd(library, embedded.init) : null) ??
      openInitFile(options.dataDir, embedded.init);
    return new Native(library, initFd, () => monotonicNs(libc));
  }

  /** CLOCK_MONOTONIC in nanoseconds: the clock of reports. */
  monotonicNs(): bigint {
    return this.#monotonicNs();
  }

  /**
   * Starts process 1, on a thread of its own: clone(2) waits for locks of the whole system.
   *
   * @throws CprgError when there is no such thread, NativeError when it cannot be asked
   */
  launch(request: LaunchRequest): Launching {
    const job = new Uint8Array(new ArrayBuffer(SIZES.launchJob));
    encodeLaunch(new DataView(job.buffer), { ...request, initFd: this.#initFd });
    launcher ??= startLauncher(this.#library);
    this.#jobs.add(job);
    const asked = this.#library.cprg_launch_later(launcher, job);
    if (asked < 0) this.#jobs.delete(job);
    this.#check("launch_later", asked);
    return {
      take: () => {
        if (this.#library.cprg_launch_done(job) === 0) return null;
        this.#jobs.delete(job);
        return launchedBy(new DataView(job.buffer));
      },
    };
  }

  /** Frees what the launched child used until it was ready. */
  launchEnd(arena: bigint): void {
    this.#check("launch_end", this.#library.cprg_launch_end(arena));
  }

  /** Two ends of a SOCK_SEQPACKET connection. */
  socketpair(): readonly [number, number] {
    const fds = new Int32Array(2);
    this.#check("socketpair", this.#library.cprg_socketpair(fds));
    return [fds[0] ?? -1, fds[1] ?? -1];
  }

  /** Read end and write end of a pipe; the server's own end does not block. */
  pipe(ours: "read" | "write"): readonly [number, number] {
    const fds = new Int32Array(2);
    this.#check("pipe", this.#library.cprg_pipe(fds, ours === "read" ? 1 : 2));
    return [fds[0] ?? -1, fds[1] ?? -1];
  }

  /** Sends one message with descriptors; false when the socket is full. */
  send(socket: number, message: Uint8Array, fds: readonly number[]): boolean {
    const passed = new Int32Array(Math.max(1, fds.length));
    passed.set(fds);
    const result = this.#library.cprg_send(socket, message, message.length, passed, fds.length);
    if (result === -EAGAIN) return false;
    this.#check("sendmsg", result);
    return true;
  }

  /** The descriptors of the next message, or null when there is none yet. */
  receiveFds(socket: number): readonly number[] | null {
    const bytes = new Uint8Array(64);
    const fds = new Int32Array(BOUNDS.requestFds);
    const count = new Uint32Array(1);
    const result = this.#library.cprg_receive(socket, bytes, bytes.length, fds, fds.length, count);
    if (result === -EAGAIN) return null;
    this.#check("recvmsg", result);
    return [...fds.subarray(0, count[0])];
  }

  /** Reaps process 1: null while it lives. */
  reap(pidfd: number): Death | null {
    const out = new Int32Array(SIZES.wait / 4);
    this.#check("waitid", this.#library.cprg_reap(pidfd, out));
    const [exited, code = -1, signal = 0] = out;
    if (exited === 0) return null;
    return signal === 0 ? { code, signal: null } : { code: null, signal };
  }

  /** Sends a signal through a pidfd; false when the process is gone. */
  signal(pidfd: number, signal: number): boolean {
    return this.#library.cprg_signal(pidfd, signal) >= 0;
  }

  /** A pidfd, or null when the process is gone. */
  pidfd(pid: number): number | null {
    const result = this.#library.cprg_pidfd(pid);
    return result < 0 ? null : result;
  }

  /** A locked file's descriptor, or null when another process holds the lock. */
  lock(path: string): number | null {
    const result = this.#library.cprg_lock(cString(path));
    if (result === -EAGAIN) return null;
    return this.#check(`lock ${path}`, result);
  }

  /** Space of the file system that a descriptor is on. */
  statfs(fd: number): FileSystemSpace {
    const out = new BigUint64Array(SIZES.statfs / 8);
    this.#check("fstatfs", this.#library.cprg_statfs(fd, out));
    const [, blocks = 0n, blocksFree = 0n, inodes = 0n, inodesFree = 0n] = out;
    return {
      blocks: Number(blocks),
      blocksFree: Number(blocksFree),
      inodes: Number(inodes),
      inodesFree: Number(inodesFree),
    };
  }

  /** Opens a path strictly beneath a directory; no link in it is followed. */
  openBeneath(dirfd: number, path: string, flags: number): number {
    const result = this.#library.cprg_open_beneath(dirfd, cString(path), flags, 0);
    return this.#check(`open ${JSON.stringify(path)}`, result);
  }

  /**
   * Opens a path beneath a directory, through links that stay there.
   *
   * @param mode of a file that is created, before the umask
   * @throws NativeError EXDEV for one that leads out, EAGAIN when renames raced with it too often
   */
  openWithin(dirfd: number, path: string, flags: number, mode = 0): number {
    const result = this.#library.cprg_open_within(dirfd, cString(path), flags, mode);
    return this.#check(`open ${JSON.stringify(path)}`, result);
  }

  /** Reads what is in a pipe and forgets it: bytes, 0 at the end, null when it is empty. */
  drain(fd: number): number | null {
    const result = this.#library.cprg_read(fd, this.#drained, this.#drained.length);
    if (result === -EAGAIN) return null;
    return this.#check("read", result);
  }

  /** Whether a pipe or terminal has bytes to read, or its end. */
  isReadable(fd: number): boolean {
    return this.#check("poll", this.#library.cprg_readable(fd)) !== 0;
  }

  /** A new terminal of a devpts directory. */
  terminal(devptsFd: number, { columns, rows }: TerminalSize): Terminal {
    const fds = new Int32Array(3);
    this.#check("terminal", this.#library.cprg_terminal(devptsFd, columns, rows, fds));
    const [output = -1, input = -1, peer = -1] = fds;
    return { output, input, peer };
  }

  /** Tells a terminal, and through SIGWINCH its programs, how large it is. */
  resize(masterFd: number, { columns, rows }: TerminalSize): void {
    this.#check("resize", this.#library.cprg_resize(masterFd, columns, rows));
  }

  /** Keeps other processes of this user from reading the server's memory; no core dumps. */
  harden(): void {
    this.#check("harden", this.#library.cprg_harden());
  }

  /**
   * Cuts the capabilities of the calling thread, and of it alone, down to a mask. What comes next is
   * `restart`, or the end of the process.
   *
   * @throws NativeError EPERM where the bounding set may not be cut (no CAP_SETPCAP)
   */
  reduce(keep: bigint): void {
    this.#check("reduce", this.#library.cprg_reduce(keep));
  }

  /**
   * Replaces this process by its own program, started anew with what the calling thread has.
   *
   * @throws NativeError and does not return otherwise
   */
  restart({ args, variables, fds }: RestartRequest): never {
    const { cprg_restart: restart } = this.#library;
    const kept = new Int32Array(Math.max(1, fds.length));
    kept.set(fds);
    const result = restart(args, args.length, variables, variables.length, kept, fds.length);
    throw new NativeError("execve /proc/self/exe", -result);
  }

  #check(call: string, result: number): number {
    if (result < 0) throw new NativeError(call, -result);
    return result;
  }
}

function cString(text: string): Buffer {
  return Buffer.from(`${text}\0`, "utf8");
}

function openFromMemfd(libc: Libc, bytes: Uint8Array): Library | null {
  const fd = sealedMemfd(libc, "libcprg", bytes);
  if (fd === null) return null;
  try {
    return dlopen(`/proc/self/fd/${fd}`, SYMBOLS).symbols;
  } catch {
    // Mapping a memfd executable is forbidden here: the caller takes a file.
    return null;
  } finally {
    closeSync(fd);
  }
}

/** Where memfds may not be executed: a private file, unlinked once it is mapped. */
function openFromFile(dataDir: string, bytes: Uint8Array): Library {
  const path = privateFile(dataDir, "libcprg.so", bytes);
  try {
    return dlopen(path, SYMBOLS).symbols;
  } catch (cause) {
    throw new CprgError("failed_precondition", "Cannot load the sandbox's native library", {
      reason: "NATIVE_LIBRARY",
      hint: "Mount the data directory without noexec: this kernel forbids memfds (vm.memfd_noexec)",
      cause,
    });
  } finally {
    rmSync(path, { force: true });
  }
}

function openInitFile(dataDir: string, bytes: Uint8Array): number {
  const path = privateFile(dataDir, "cprg-init", bytes);
  const fd = openSync(path, "r");
  rmSync(path, { force: true });
  return fd;
}

function privateFile(dataDir: string, name: string, bytes: Uint8Array): string {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, `.${process.pid}-${crypto.randomUUID()}-${name}`);
  writeFileSync(path, bytes, { mode: 0o700, flag: "wx" });
  return path;
}

function openInitMemfd(library: Library, bytes: Uint8Array): number | null {
  const fd = library.cprg_memfd(cString("cprg-init"), bytes, bytes.length);
  return fd < 0 ? null : fd;
}

const LIBC_NAMES = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"] as const;

const LIBC_SYMBOLS = {
  memfd_create: { args: ["ptr", "u32"], returns: "i32" },
  fcntl: { args: ["i32", "i32", "i32"], returns: "i32" },
  clock_gettime: { args: ["i32", "ptr"], returns: "i32" },
} as const;

type Libc = ReturnType<typeof dlopen<typeof LIBC_SYMBOLS>>["symbols"];

/** The few calls that are needed before the shim is there. */
function openLibc(): Libc {
  let cause: unknown;
  for (const name of LIBC_NAMES) {
    try {
      return dlopen(name, LIBC_SYMBOLS).symbols;
    } catch (error) {
      cause = error;
    }
  }
  throw new CprgError("failed_precondition", `Cannot load any of ${LIBC_NAMES.join(", ")}`, {
    reason: "NATIVE_LIBRARY",
    hint: "Use the release for this system's C library",
    cause,
  });
}

/** A sealed memfd with these bytes, or null where memfds may not be executed (memfd_create(2)). */
function sealedMemfd(libc: Libc, name: string, bytes: Uint8Array): number | null {
  const CLOEXEC_SEALABLE = 3;
  const MFD_EXEC = 16;
  const F_ADD_SEALS = 1033;
  const ALL_SEALS = 15;
  let fd = libc.memfd_create(cString(name), CLOEXEC_SEALABLE | MFD_EXEC);
  // Kernels before 6.3 know no MFD_EXEC and refuse it; their memfds are executable.
  if (fd < 0) fd = libc.memfd_create(cString(name), CLOEXEC_SEALABLE);
  if (fd < 0) return null;
  for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
  libc.fcntl(fd, F_ADD_SEALS, ALL_SEALS);
  return fd;
}

function monotonicNs(libc: Libc): bigint {
  const CLOCK_MONOTONIC = 1;
  const time = new BigInt64Array(2);
  libc.clock_gettime(CLOCK_MONOTONIC, time);
  return (time[0] ?? 0n) * 1_000_000_000n + (time[1] ?? 0n);
}
