/**
 * The bytes of ffi/cprg.h from JavaScript: sizes, offsets, constants, and a builder for messages.
 * The header is the truth; test/sandbox/layout.test.ts compiles a probe of it and compares.
 */

import { assert, CprgError } from "../core/errors.ts";

/** `CPRG_ABI`. */
export const ABI = 4;

/** Bounds of the header that the server checks before it sends. */
export const BOUNDS = {
  cgroups: 8,
  requestBytes: 196_608,
  requestFds: 12,
  planSteps: 512,
  args: 4096,
  rlimits: 16,
  filterBytes: 32_768,
  execs: 256,
  pathBytes: 4096,
  entries: 1_000_000,
  depth: 64,
} as const;

/** Size of every struct that crosses the border, in the order of `struct cprg_abi` after `abi`. */
export const SIZES = {
  error: 16,
  launch: 80,
  launched: 16,
  launchJob: 120,
  wait: 16,
  statfs: 40,
  request: 80,
  plan: 48,
  planStep: 24,
  rlimit: 24,
  report: 80,
  entry: 24,
} as const;

/** `enum cprg_map`. */
export const MAP = { none: 0, parent: 1, self: 2 } as const;

/** `enum cprg_op`. */
export const OP = {
  directory: 1,
  file: 2,
  link: 3,
  bind: 4,
  proc: 5,
  mask: 6,
  data: 7,
  dataBind: 8,
  readOnly: 9,
  devpts: 10,
} as const;

/** `enum cprg_bind`. */
export const BIND = { readOnly: 1, noexec: 2, optional: 4, device: 8 } as const;

/** `enum cprg_request_type`. */
export const REQUEST = { exec: 1, signal: 2, pack: 3, unpack: 4, kill: 5, remove: 6 } as const;

/** `enum cprg_request_flags`. */
export const FLAG = { nullStdin: 1, merge: 2, keeper: 4, terminal: 8 } as const;

/** `enum cprg_filter`: what becomes of a call that the filter of an exec traps. */
export const FILTER = { none: 0, notify: 1, kill: 2 } as const;

/** `enum cprg_report_type`. */
export const REPORT = {
  ready: 1,
  setupFailed: 2,
  started: 3,
  execFailed: 4,
  exited: 5,
  transferred: 6,
  violation: 7,
  launched: 8,
} as const;

/** `enum cprg_entry_type`, and the magic number of an entry. */
export const ENTRY = { file: 1, directory: 2, link: 3, end: 4 } as const;
/** `CPRG_ENTRY_MAGIC`. */
export const ENTRY_MAGIC = 0x4152_5043;

/** Namespaces that init unshares, from linux/sched.h. */
export const CLONE = {
  newNs: 0x0002_0000,
  newCgroup: 0x0200_0000,
  newUts: 0x0400_0000,
  newIpc: 0x0800_0000,
  newNet: 0x4000_0000,
} as const;

/** Resources of setrlimit(2). */
export const RLIMIT = {
  cpu: 0,
  fsize: 1,
  data: 2,
  stack: 3,
  core: 4,
  nproc: 6,
  nofile: 7,
  memlock: 8,
  sigpending: 11,
  msgqueue: 12,
  rtprio: 14,
} as const;

/** `struct cprg_report` as an object. */
export interface Report {
  readonly type: number;
  readonly id: number;
  readonly step: number;
  readonly index: number;
  readonly errno: number;
  readonly code: number;
  readonly signal: number;
  readonly pid: number;
  readonly userUs: number;
  readonly systemUs: number;
  readonly maxRssBytes: number;
  /** CLOCK_MONOTONIC. */
  readonly atNs: bigint;
  readonly entries: number;
  readonly bytes: number;
}

/** Decodes one report at an offset. */
export function decodeReport(view: DataView, at: number): Report {
  const i32 = (offset: number): number => view.getInt32(at + offset, true);
  const u64 = (offset: number): number => Number(view.getBigUint64(at + offset, true));
  return {
    type: view.getUint32(at, true),
    id: view.getUint32(at + 4, true),
    step: i32(8),
    index: i32(12),
    errno: i32(16),
    code: i32(20),
    signal: i32(24),
    pid: i32(28),
    userUs: u64(32),
    systemUs: u64(40),
    maxRssBytes: u64(48),
    atNs: view.getBigUint64(at + 56, true),
    entries: u64(64),
    bytes: u64(72),
  };
}

const encoder = new TextEncoder();

/** Builds one control message: a header, then the bytes that its offsets point into. */
export class MessageBuilder {
  #bytes: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #length: number;

  constructor(headerBytes: number) {
    this.#bytes = new Uint8Array(4096);
    this.#view = new DataView(this.#bytes.buffer);
    this.#length = headerBytes;
    this.u32(0, headerBytes);
  }

  /** Sets a 32-bit field, signed or not. */
  u32(at: number, value: number): void {
    this.#view.setUint32(at, value, true);
  }

  /** Sets a 64-bit field. */
  u64(at: number, value: number): void {
    this.#view.setBigUint64(at, BigInt(value), true);
  }

  /** Appends a NUL-terminated string and returns its offset. @throws CprgError on a NUL in it */
  text(value: string): number {
    if (value.includes("\0")) {
      throw new CprgError("invalid_argument", "Cannot use a text with a NUL byte in it");
    }
    const bytes = encoder.encode(value);
    const at = this.raw(bytes);
    this.reserve(1);
    return at;
  }

  /** Appends bytes and returns their offset. */
  raw(bytes: Uint8Array): number {
    const at = this.reserve(bytes.length);
    this.#bytes.set(bytes, at);
    return at;
  }

  /** Appends zeroed room, aligned, and returns its offset. */
  reserve(bytes: number, align = 1): number {
    const at = Math.ceil(this.#length / align) * align;
    const end = at + bytes;
    if (end > BOUNDS.requestBytes) {
      throw new CprgError(
        "invalid_argument",
        `Cannot send a request of more than ${BOUNDS.requestBytes} bytes to a sandbox`,
        { hint: "Shorten the arguments and variables, or pass them in a file" },
      );
    }
    if (end > this.#bytes.length) this.#grow(end);
    this.#length = end;
    return at;
  }

  /** The message. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  #grow(least: number): void {
    let size = this.#bytes.length;
    while (size < least) size *= 2;
    const grown = new Uint8Array(size);
    grown.set(this.#bytes);
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}

/** Offsets of `struct cprg_launch`. */
export const LAUNCH = {
  size: 0,
  map: 4,
  initFd: 8,
  controlFd: 12,
  reportFd: 16,
  cgroupDirFd: 20,
  cgroupCount: 24,
  cgroupFds: 28,
  uidInit: 60,
  gidInit: 64,
  uidProgram: 68,
  gidProgram: 72,
  idInside: 76,
} as const;

/** Offsets of `struct cprg_launch_job`; its request is at 0. */
export const LAUNCH_JOB = { launched: 80, error: 96, result: 112 } as const;

/** Offsets of `struct cprg_plan`. */
export const PLAN = {
  size: 0,
  abi: 4,
  unshare: 8,
  idProgram: 12,
  idMap: 16,
  stepCount: 20,
  steps: 24,
  scratch: 28,
  rootOptions: 32,
  hostname: 36,
  workspace: 40,
} as const;

/** Offsets of `struct cprg_plan_step`. */
export const PLAN_STEP = {
  op: 0,
  flags: 4,
  mode: 8,
  source: 12,
  sourceLength: 16,
  target: 20,
} as const;

/** Offsets of `struct cprg_request`. */
export const REQUEST_AT = {
  size: 0,
  type: 4,
  id: 8,
  flags: 12,
  value: 16,
  cgroupCount: 20,
  umask: 24,
  oomScoreAdj: 28,
  rlimitCount: 32,
  rlimits: 36,
  path: 40,
  argc: 44,
  argv: 48,
  envc: 52,
  envp: 56,
  notify: 60,
  notifyLength: 64,
  kill: 68,
  killLength: 72,
} as const;

/** Offsets of `struct cprg_rlimit`. */
export const RLIMIT_AT = { resource: 0, soft: 8, hard: 16 } as const;

/** Offsets of `struct cprg_entry`. */
export const ENTRY_AT = { magic: 0, type: 4, mode: 8, pathLength: 12, size: 16 } as const;

/** Checks what `cprg_abi` answered. @throws when the library was built from another header */
export function checkAbi(answer: Uint32Array): void {
  const expected = [ABI, ...Object.values(SIZES)];
  assert(
    expected.every((value, index) => answer[index] === value),
    `libcprg.so has ABI ${[...answer].join(" ")}, this build expects ${expected.join(" ")}`,
  );
}
