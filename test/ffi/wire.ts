/** The messages of `ffi/cprg.h`, written out for the tests, well-formed or not. */

/** A message under construction: a header of fixed size, then what its offsets point to. */
export class Message {
  readonly header: DataView;
  readonly #parts: Uint8Array[];
  #length: number;

  constructor(headerSize: number) {
    const header = new Uint8Array(headerSize);
    this.header = new DataView(header.buffer);
    this.#parts = [header];
    this.#length = headerSize;
    this.set(0, headerSize);
  }

  set(offset: number, value: number): this {
    this.header.setUint32(offset, value, true);
    return this;
  }

  /** Appends bytes at a multiple of 8: their offset. */
  add(bytes: Uint8Array): number {
    const padding = (8 - (this.#length % 8)) % 8;
    const offset = this.#length + padding;
    this.#parts.push(new Uint8Array(padding), bytes);
    this.#length = offset + bytes.byteLength;
    return offset;
  }

  text(text: string): number {
    return this.add(new TextEncoder().encode(`${text}\0`));
  }

  words(values: readonly number[]): number {
    return this.add(new Uint8Array(new Uint32Array(values).buffer));
  }

  bytes(): Uint8Array {
    const bytes = new Uint8Array(this.#length);
    let at = 0;
    for (const part of this.#parts) {
      bytes.set(part, at);
      at += part.byteLength;
    }
    return bytes;
  }
}

export const op = {
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
export const bindFlag = { readOnly: 1, noexec: 2, optional: 4, device: 8 } as const;
export const step = {
  none: 0,
  request: 1,
  clone: 3,
  idMap: 4,
  cgroup: 17,
  execInit: 20,
  plan: 33,
  mount: 37,
  fork: 64,
  execCgroup: 65,
  session: 66,
  stdio: 67,
  rlimit: 68,
  identity: 69,
  directory: 71,
  execve: 72,
  seccomp: 73,
  stream: 80,
  entry: 81,
  commit: 82,
} as const;
export const reportType = {
  ready: 1,
  setupFailed: 2,
  started: 3,
  execFailed: 4,
  exited: 5,
  transferred: 6,
  violation: 7,
  launched: 8,
} as const;

export interface PlanStep {
  op: number;
  target: string;
  source?: string;
  content?: string;
  flags?: number;
  mode?: number;
}

export interface Plan {
  steps: PlanStep[];
  scratch: string;
  rootOptions: string;
  workspace: string;
  hostname: string;
  unshare: number;
  idProgram: number;
  idMap: number;
}

export function encodePlan(plan: Plan): Uint8Array {
  const message = new Message(48);
  const words: number[] = [];
  for (const entry of plan.steps) {
    const content = entry.content === undefined ? undefined : Buffer.from(entry.content);
    const source =
      content !== undefined
        ? message.add(content)
        : entry.source === undefined
          ? 0
          : message.text(entry.source);
    words.push(
      entry.op,
      entry.flags ?? 0,
      entry.mode ?? 0,
      source,
      content?.byteLength ?? 0,
      message.text(entry.target),
    );
  }
  return message
    .set(4, 4)
    .set(8, plan.unshare)
    .set(12, plan.idProgram)
    .set(16, plan.idMap)
    .set(20, plan.steps.length)
    .set(24, message.words(words))
    .set(28, message.text(plan.scratch))
    .set(32, message.text(plan.rootOptions))
    .set(36, message.text(plan.hostname))
    .set(40, message.text(plan.workspace))
    .bytes();
}

export interface Request {
  type: "exec" | "signal" | "pack" | "unpack" | "kill" | "remove";
  id: number;
  argv?: string[];
  env?: Record<string, string>;
  path?: string;
  nullStdin?: boolean;
  merge?: boolean;
  keeper?: boolean;
  signal?: number;
  cgroupCount?: number;
  umask?: number;
  oomScoreAdj?: number;
  rlimits?: { resource: number; soft: bigint; hard: bigint }[];
  /** seccomp programs. */
  notify?: Uint8Array;
  kill?: Uint8Array;
}

export function encodeRequest(request: Request): Uint8Array {
  const message = new Message(80);
  const argv = (request.argv ?? []).map((text) => message.text(text));
  const env = Object.entries(request.env ?? {}).map(([key, value]) =>
    message.text(`${key}=${value}`),
  );
  const rlimits = new BigUint64Array(
    (request.rlimits ?? []).flatMap((limit) => [BigInt(limit.resource), limit.soft, limit.hard]),
  );
  const flags =
    (request.nullStdin === true ? 1 : 0) |
    (request.merge === true ? 2 : 0) |
    (request.keeper === true ? 4 : 0);
  return message
    .set(4, { exec: 1, signal: 2, pack: 3, unpack: 4, kill: 5, remove: 6 }[request.type])
    .set(8, request.id)
    .set(12, flags)
    .set(16, request.signal ?? 0)
    .set(20, request.cgroupCount ?? 0)
    .set(24, request.umask ?? 0o22)
    .set(28, request.oomScoreAdj ?? 0)
    .set(32, rlimits.length / 3)
    .set(36, message.add(new Uint8Array(rlimits.buffer)))
    .set(40, message.text(request.path ?? "/"))
    .set(44, argv.length)
    .set(48, message.words(argv))
    .set(52, env.length)
    .set(56, message.words(env))
    .set(60, request.notify === undefined ? 0 : message.add(request.notify))
    .set(64, request.notify?.byteLength ?? 0)
    .set(68, request.kill === undefined ? 0 : message.add(request.kill))
    .set(72, request.kill?.byteLength ?? 0)
    .bytes();
}

export interface Report {
  type: number;
  id: number;
  step: number;
  index: number;
  err: number;
  code: number;
  signal: number;
  pid: number;
  userUs: bigint;
  systemUs: bigint;
  maxRssBytes: bigint;
  atNs: bigint;
  entries: bigint;
  bytes: bigint;
}

export const reportSize = 80;

export function decodeReport(bytes: Uint8Array): Report {
  const view = new DataView(bytes.buffer, bytes.byteOffset, reportSize);
  const int = (offset: number): number => view.getInt32(offset, true);
  const long = (offset: number): bigint => view.getBigUint64(offset, true);
  return {
    type: int(0),
    id: int(4),
    step: int(8),
    index: int(12),
    err: int(16),
    code: int(20),
    signal: int(24),
    pid: int(28),
    userUs: long(32),
    systemUs: long(40),
    maxRssBytes: long(48),
    atNs: long(56),
    entries: long(64),
    bytes: long(72),
  };
}

/*** Archive streams ***/

export interface Entry {
  type: "file" | "directory" | "link";
  path: string;
  mode?: number;
  content?: string | Uint8Array;
}

export const file = (path: string, content: string | Uint8Array = "", mode = 0o644): Entry => ({
  type: "file",
  path,
  content,
  mode,
});
export const directory = (path: string, mode = 0o755): Entry => ({ type: "directory", path, mode });
export const link = (path: string, content: string): Entry => ({ type: "link", path, content });

const entryTypes = { file: 1, directory: 2, link: 3 } as const;
const entryMagic = 0x41525043;

export function encodeEntry(entry: {
  type: number;
  path: string;
  mode?: number;
  content?: Uint8Array;
  magic?: number;
  size?: number;
}): Uint8Array {
  const path = Buffer.from(entry.path);
  const content = entry.content ?? new Uint8Array();
  const header = new DataView(new ArrayBuffer(24));
  header.setUint32(0, entry.magic ?? entryMagic, true);
  header.setUint32(4, entry.type, true);
  header.setUint32(8, entry.mode ?? 0, true);
  header.setUint32(12, path.byteLength, true);
  header.setBigUint64(16, BigInt(entry.size ?? content.byteLength), true);
  return Buffer.concat([new Uint8Array(header.buffer), path, content]);
}

export const endEntry = encodeEntry({ type: 4, path: "" });

export function encodeArchive(entries: readonly Entry[]): Uint8Array {
  return Buffer.concat([
    ...entries.map((entry) =>
      encodeEntry({
        type: entryTypes[entry.type],
        path: entry.path,
        mode: entry.mode ?? (entry.type === "directory" ? 0o755 : 0o644),
        content: Buffer.from(entry.content ?? ""),
      }),
    ),
    endEntry,
  ]);
}

export interface DecodedEntry {
  type: number;
  path: string;
  mode: number;
  content: Buffer;
}

/** Entries in the order of the stream, without the last, which must be END. */
export function decodeArchive(bytes: Uint8Array): DecodedEntry[] {
  const buffer = Buffer.from(bytes);
  const entries: DecodedEntry[] = [];
  let at = 0;
  for (;;) {
    if (buffer.readUInt32LE(at) !== entryMagic) {
      throw new Error(`no entry at ${at}`);
    }
    const [type, mode, pathLength] = [4, 8, 12].map((offset) =>
      buffer.readUInt32LE(at + offset),
    ) as [number, number, number];
    const size = Number(buffer.readBigUInt64LE(at + 16));
    if (type === 4) {
      if (at + 24 !== buffer.byteLength) {
        throw new Error("bytes after END");
      }
      return entries;
    }
    const path = buffer.toString("utf8", at + 24, at + 24 + pathLength);
    const start = at + 24 + pathLength;
    entries.push({ type, path, mode, content: buffer.subarray(start, start + size) });
    at = start + size;
  }
}
