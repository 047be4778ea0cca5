/** One sandbox under test: launched with a minimal plan, driven through its socket and pipe. */
import { ptr } from "bun:ffi";
import { closeSync, existsSync, lstatSync, readFileSync, readlinkSync, writeSync } from "node:fs";
import {
  built,
  native,
  pipe,
  readAll,
  receive,
  scratch,
  send,
  socketpair,
  waitReadable,
} from "./native.ts";
import {
  bindFlag,
  decodeReport,
  encodePlan,
  encodeRequest,
  op,
  type Plan,
  type PlanStep,
  type Report,
  type Request,
  reportSize,
  reportType,
} from "./wire.ts";

const initBytes = readFileSync(built.init);
export const initFd = native.cprg_memfd(
  Buffer.from("cprg-init\0"),
  ptr(initBytes),
  initBytes.byteLength,
);

const newNamespaces = 0x0002_0000 | 0x4000_0000 | 0x0800_0000 | 0x0400_0000 | 0x0200_0000;
export const map = { none: 0, parent: 1, self: 2 } as const;
export const uidInit = 700_001;
export const uidProgram = 700_002;
export const idInside = 1000;

function hostDirectory(path: string): PlanStep[] {
  if (!existsSync(path)) {
    return [];
  }
  return lstatSync(path).isSymbolicLink()
    ? [{ op: op.link, target: path, source: readlinkSync(path) }]
    : [{ op: op.bind, target: path, source: path, flags: bindFlag.readOnly }];
}

export const minimalSteps: PlanStep[] = [
  ...["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"].flatMap(hostDirectory),
  {
    op: op.bind,
    target: "/dev/null",
    source: "/dev/null",
    flags: bindFlag.device | bindFlag.noexec,
  },
  {
    op: op.bind,
    target: "/dev/zero",
    source: "/dev/zero",
    flags: bindFlag.device | bindFlag.noexec,
  },
  { op: op.proc, target: "/proc" },
  { op: op.mask, target: "/proc/kcore" },
  { op: op.mask, target: "/proc/acpi" },
  { op: op.mask, target: "/proc/no-such-file" },
  { op: op.readOnly, target: "/proc/sys" },
  {
    op: op.file,
    target: "/etc/passwd",
    mode: 0o444,
    content: "agent:x:1000:1000::/home/agent:/bin/sh\n",
  },
  { op: op.data, target: "/.data", source: "size=64m,nr_inodes=20000,mode=0755" },
  { op: op.dataBind, target: "/workspace", source: "workspace", mode: 0o755 },
  { op: op.dataBind, target: "/tmp", source: "tmp", mode: 0o1777 },
];

export const minimalPlan: Omit<Plan, "scratch"> = {
  steps: minimalSteps,
  rootOptions: "size=1m,nr_inodes=256,mode=0755",
  workspace: "/workspace",
  hostname: "sandbox",
  unshare: newNamespaces,
  idProgram: idInside,
  idMap: map.parent,
};

export interface LaunchOptions {
  plan?: Partial<Plan>;
  /** Sent instead of the plan; null: nothing is sent. */
  planBytes?: Uint8Array | null;
  map?: number;
  cgroupFds?: number[];
  cgroupDirFd?: number;
  initFd?: number;
  header?: (view: DataView) => void;
}

export interface LaunchError {
  result: number;
  step: number;
  index: number;
  err: number;
}

export function launchBytes(options: LaunchOptions, control: number, report: number): DataView {
  const view = new DataView(new ArrayBuffer(80));
  const put = (offset: number, values: readonly number[]): void => {
    for (const [index, value] of values.entries()) view.setUint32(offset + index * 4, value, true);
  };
  const fds = options.cgroupFds ?? [];
  const { map: idMap = map.parent, initFd: init = initFd, cgroupDirFd = -1 } = options;
  put(0, [80, idMap, init, control, report, cgroupDirFd, fds.length, ...fds]);
  put(60, [uidInit, uidInit, uidProgram, uidProgram, idInside]);
  options.header?.(view);
  return view;
}

export interface Outcome {
  report: Report;
  started: boolean;
  out: string;
  err: string;
}

export class Sandbox {
  readonly pid: number;
  readonly pidfd: number;
  readonly control: number;
  readonly report: number;
  readonly launchNs: number;
  #arena: bigint;
  workspace = -1;
  #nextId = 1;
  readonly #pending: Report[] = [];
  #controlOpen = true;
  #reaped = false;

  private constructor(control: number, report: number, launched: DataView, launchNs: number) {
    this.control = control;
    this.report = report;
    this.pid = launched.getInt32(0, true);
    this.pidfd = launched.getInt32(4, true);
    this.#arena = launched.getBigUint64(8, true);
    this.launchNs = launchNs;
  }

  /** Clones process 1 and sends the plan; does not wait. */
  static launch(options: LaunchOptions = {}): Sandbox | LaunchError {
    const [control, childControl] = socketpair();
    const [report, childReport] = pipe(1);
    const launched = new DataView(new ArrayBuffer(16));
    const error = new DataView(new ArrayBuffer(16));
    const request = launchBytes(options, childControl, childReport);
    if (options.planBytes !== null) {
      const plan =
        options.planBytes ??
        encodePlan({
          ...minimalPlan,
          scratch: scratch(),
          idMap: options.map ?? map.parent,
          ...options.plan,
        });
      const sent = send(control, plan);
      if (sent < 0) {
        throw new Error(`plan not sent: ${sent}`);
      }
    }
    const start = Bun.nanoseconds();
    const result = native.cprg_launch(ptr(request), ptr(launched), ptr(error));
    const launchNs = Bun.nanoseconds() - start;
    closeSync(childControl);
    closeSync(childReport);
    if (result < 0) {
      closeSync(control);
      closeSync(report);
      const [step, index, err] = [0, 4, 8].map((offset) => error.getInt32(offset, true)) as [
        number,
        number,
        number,
      ];
      return { result, step, index, err };
    }
    return new Sandbox(control, report, launched, launchNs);
  }

  /** Launches and waits for READY. */
  static open(options: LaunchOptions = {}): Sandbox {
    const sandbox = Sandbox.launch(options);
    if (!(sandbox instanceof Sandbox)) {
      throw new Error(`launch failed: ${JSON.stringify(sandbox)}`);
    }
    const report = sandbox.next();
    if (report.type !== reportType.ready) {
      sandbox[Symbol.dispose]();
      throw new Error(`not ready: step ${report.step} index ${report.index} errno ${report.err}`);
    }
    sandbox.workspace = receive(sandbox.control).fds[0] ?? -1;
    return sandbox;
  }

  /** The next record that init writes; undefined at the end of the pipe. */
  nextOrEnd(): Report | undefined {
    for (;;) {
      waitReadable(this.report);
      const bytes = new Uint8Array(reportSize);
      const count = native.cprg_read(this.report, ptr(bytes), reportSize);
      if (count === reportSize) {
        const report = decodeReport(bytes);
        this.endArena(); // even a child that failed needs it no more
        return report;
      }
      if (count === 0) {
        this.endArena();
        return undefined;
      }
      if (count !== -11) {
        throw new Error(`report pipe: ${count}`);
      }
    }
  }

  next(): Report {
    const report = this.nextOrEnd();
    if (report === undefined) {
      throw new Error("init ended without a report");
    }
    return report;
  }

  /** The next record of one exec; those of others are kept for theirs. */
  nextOf(id: number): Report {
    const index = this.#pending.findIndex((report) => report.id === id);
    if (index >= 0) {
      return this.#pending.splice(index, 1)[0] as Report;
    }
    for (;;) {
      const report = this.next();
      if (report.id === id) {
        return report;
      }
      this.#pending.push(report);
    }
  }

  endArena(): void {
    if (this.#arena !== 0n) {
      native.cprg_launch_end(this.#arena);
      this.#arena = 0n;
    }
  }

  newId(): number {
    return this.#nextId++;
  }

  send(request: Request, fds: readonly number[] = []): number {
    return send(this.control, encodeRequest(request), fds);
  }

  /** Runs one program to its end. */
  run(argv: string[], options: Partial<Request> & { cgroupFds?: number[] } = {}): Outcome {
    const id = this.newId();
    const [out, outChild] = pipe();
    const [err, errChild] = pipe();
    const cgroupFds = options.cgroupFds ?? [];
    this.send(
      {
        type: "exec",
        id,
        argv,
        path: "/workspace",
        nullStdin: true,
        env: { PATH: "/usr/bin:/bin" },
        ...options,
        cgroupCount: cgroupFds.length,
      },
      [outChild, errChild, ...cgroupFds],
    );
    closeSync(outChild);
    closeSync(errChild);
    let report = this.nextOf(id);
    const started = report.type === reportType.started;
    const outcome = {
      started,
      out: Buffer.from(readAll(out)).toString(),
      err: Buffer.from(readAll(err)).toString(),
    };
    if (started) {
      report = this.nextOf(id);
    }
    closeSync(out);
    closeSync(err);
    return { report, ...outcome };
  }

  sh(script: string, options: Partial<Request> = {}): Outcome {
    return this.run(["/bin/sh", "-c", script], options);
  }

  /** Feeds a stream to an UNPACK and closes it. */
  unpack(path: string, stream: Uint8Array, options: Partial<Request> = {}): Report {
    const id = this.newId();
    const [read, write] = pipe(2);
    this.send({ type: "unpack", id, path, ...options }, [read]);
    closeSync(read);
    const first = this.nextOf(id);
    if (first.type !== reportType.started) {
      closeSync(write);
      return first;
    }
    writeAll(write, stream);
    closeSync(write);
    return this.nextOf(id);
  }

  pack(path: string): { report: Report; stream: Uint8Array } {
    const id = this.newId();
    const [read, write] = pipe();
    this.send({ type: "pack", id, path }, [write]);
    closeSync(write);
    const stream = readAll(read);
    closeSync(read);
    let report = this.nextOf(id);
    if (report.type === reportType.started) {
      report = this.nextOf(id);
    }
    return { report, stream };
  }

  closeControl(): void {
    if (this.#controlOpen) {
      this.#controlOpen = false;
      closeSync(this.control);
    }
  }

  /** Waits for process 1: how it ended. */
  reap(): { code: number; signal: number } {
    const wait = new DataView(new ArrayBuffer(16));
    waitReadable(this.pidfd);
    const result = native.cprg_reap(this.pidfd, ptr(wait));
    if (result < 0 || wait.getInt32(0, true) !== 1) {
      throw new Error(`reap: ${result}`);
    }
    this.#reaped = true;
    return { code: wait.getInt32(4, true), signal: wait.getInt32(8, true) };
  }

  [Symbol.dispose](): void {
    this.closeControl();
    if (!this.#reaped) {
      native.cprg_signal(this.pidfd, 9);
      this.reap();
    }
    this.endArena();
    closeSync(this.pidfd);
    closeSync(this.report);
    if (this.workspace >= 0) {
      closeSync(this.workspace);
    }
  }
}

/** Writes as fast as the reader takes it; a reader that is gone ends it. */
export function writeAll(fd: number, bytes: Uint8Array): void {
  let at = 0;
  while (at < bytes.byteLength) {
    try {
      at += writeSync(fd, bytes, at, Math.min(65536, bytes.byteLength - at));
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === "EPIPE") {
        return;
      }
      if (code !== "EAGAIN") {
        throw error;
      }
    }
  }
}
