// A provider whose programs are functions of the test: what runs, prints and ends is decided there,
// and what was asked of the provider can be looked at.

import { CprgError } from "../../src/core/errors.ts";
import type { Limits } from "../../src/core/limits.ts";
import type { Outcome } from "../../src/core/outcome.ts";
import type { Reason } from "../../src/core/reasons.ts";
import type { JobLanguage, JobLanguages } from "../../src/jobs/languages.ts";
import type {
  Artifact,
  EntryPart,
  EntrySink,
  Exec,
  ExecLease,
  ExecNotice,
  ExecProvider,
  ExecSpec,
  OpenOptions,
  OutputChannel,
  Reservation,
} from "../../src/provider/contract.ts";
import { putEntries, removeEntries, takeEntries } from "./fake-files.ts";

/** What a fake program can do, and what it was given. */
export interface Program {
  readonly spec: ExecSpec;
  /** Files by path, as text. */
  readonly files: ReadonlyMap<string, string>;
  readonly code: string;
  /** Resolves when the reader took it. */
  out(text: string | Uint8Array, channel?: OutputChannel): Promise<void>;
  notice(notice: ExecNotice): Promise<void>;
  /** Resolves with the first request to end. */
  readonly killed: Promise<Kill>;
}

export interface Kill {
  readonly reason: Reason;
  readonly graceMs: number;
}

/** How a fake program ends: an exit code, or an outcome's fields. */
export type End = number | Partial<Outcome>;

export interface FakeOptions {
  /** The program; the default prints its code and exits 0. */
  run?(program: Program): Promise<End>;
  /** Sandboxes at once; further ones wait in `reserve`. */
  capacity?: number;
  openError?: unknown;
  execError?: unknown;
  /** Of each lease in turn, whether it waited and what putting a file there fails of. */
  waited?: readonly { readonly putError?: unknown; readonly execError?: unknown }[];
  reserveError?: unknown;
  releaseError?: unknown;
  /** What every program leaves in /workspace/out, by path; an error when nobody can look. */
  artifacts?: Readonly<Record<string, string>> | Error;
  /** The program decides when it ends, whatever it is sent. */
  ignoresKill?: boolean;
}

/** A provider in memory. */
export class FakeProvider implements ExecProvider {
  readonly name = "fake";
  readonly options: FakeOptions;
  /** Places taken now, and leases open now. */
  reserved = 0;
  open_ = 0;
  /** Most leases at once. */
  peak = 0;
  readonly kills: Kill[] = [];
  /** How leases were asked for. */
  readonly opens: OpenOptions[] = [];
  readonly limitsSeen: Limits[] = [];
  readonly #waiting: (() => void)[] = [];

  constructor(options: FakeOptions = {}) {
    this.options = options;
  }

  /** How many wait for a place. */
  get waiting(): number {
    return this.#waiting.length;
  }

  async reserve(limits: Limits, { signal }: { signal?: AbortSignal } = {}): Promise<Reservation> {
    if (this.options.reserveError !== undefined) throw this.options.reserveError;
    while (this.reserved >= (this.options.capacity ?? 1000)) {
      if (signal?.aborted) throw new CprgError("canceled", "Cannot reserve: it was given up");
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
        signal?.addEventListener("abort", () => resolve(), { once: true });
      });
    }
    this.reserved += 1;
    this.limitsSeen.push(limits);
    let isHeld = true;
    return {
      limits,
      cancel: () => {
        if (!isHeld) return;
        isHeld = false;
        this.reserved -= 1;
        for (const resolve of this.#waiting.splice(0)) resolve();
      },
    };
  }

  async open(reservation: Reservation, options: OpenOptions = {}): Promise<ExecLease> {
    if (this.options.openError !== undefined) throw this.options.openError;
    this.opens.push(options);
    this.open_ += 1;
    this.peak = Math.max(this.peak, this.open_);
    return new FakeLease(this, () => {
      this.open_ -= 1;
      reservation.cancel();
    });
  }
}

class FakeLease implements ExecLease {
  readonly root = "/workspace";
  readonly home = "/home/agent";
  readonly capabilities = [] as const;
  readonly layers = { fake: true };
  readonly missing = [] as const;
  readonly files = new Map<string, string>();
  readonly modes = new Map<string, number>();
  readonly #provider: FakeProvider;
  readonly #onRelease: () => void;
  readonly #waited: NonNullable<FakeOptions["waited"]>[number] | undefined;
  #isReleased = false;

  constructor(provider: FakeProvider, onRelease: () => void) {
    this.#provider = provider;
    this.#onRelease = onRelease;
    this.#waited = provider.options.waited?.[provider.opens.length - 1];
  }

  get wasWaiting(): boolean {
    return this.#waited !== undefined;
  }

  async exec(spec: ExecSpec): Promise<Exec> {
    const { execError = this.#waited?.execError } = this.#provider.options;
    if (execError !== undefined) throw execError;
    return new FakeExec(this.#provider, spec, this.files);
  }

  async putFile(path: string, content: Uint8Array, mode = 0o644): Promise<void> {
    if (this.#waited?.putError !== undefined) throw this.#waited.putError;
    this.files.set(path, Buffer.from(content).toString("utf8"));
    this.modes.set(path, mode);
  }

  async release(): Promise<void> {
    if (this.#isReleased) return;
    this.#isReleased = true;
    await new Promise((resolve) => setImmediate(resolve));
    this.#onRelease();
    if (this.#provider.options.releaseError !== undefined) {
      throw this.#provider.options.releaseError;
    }
  }

  async artifacts(): Promise<readonly Artifact[]> {
    const { artifacts = {} } = this.#provider.options;
    if (artifacts instanceof Error) throw artifacts;
    return Object.entries(artifacts).map(([path, text]) => ({
      path,
      size: Buffer.byteLength(text),
      mode: 0o644,
      async *read() {
        yield Buffer.from(text);
      },
    }));
  }
  invoke = () => Promise.reject(new Error("not used by jobs"));
  upload = () => Promise.reject(new Error("not used by jobs"));
  download = () => Promise.reject(new Error("not used by jobs"));
  putEntries = (entries: AsyncIterable<EntryPart>, place: string) =>
    putEntries(this.files, place, entries);
  takeEntries = (place: string, sink: EntrySink) => takeEntries(this.files, place, sink);
  remove = (place: string) => removeEntries(this.files, place);
}

class FakeExec implements Exec {
  readonly pid = 2;
  readonly outcome: Promise<Outcome>;
  readonly notices: AsyncIterable<ExecNotice>;
  readonly #queue: { readonly notice: ExecNotice; readonly taken: () => void }[] = [];
  readonly #killed = Promise.withResolvers<Kill>();
  #wake: () => void = () => undefined;
  #hasEnded = false;
  readonly #provider: FakeProvider;

  constructor(provider: FakeProvider, spec: ExecSpec, files: ReadonlyMap<string, string>) {
    this.#provider = provider;
    this.notices = this.#read();
    const program: Program = {
      spec,
      files,
      code: files.get("/workspace/main.py") ?? "",
      out: (text, channel = "stdout") => {
        const bytes = typeof text === "string" ? Buffer.from(text) : text;
        return this.#push({ type: "output", channel, bytes });
      },
      notice: (notice) => this.#push(notice),
      killed: this.#killed.promise,
    };
    this.outcome = this.#run(program);
  }

  kill(reason: Reason, { graceMs = 0 }: { graceMs?: number } = {}): void {
    this.#provider.kills.push({ reason, graceMs });
    this.#killed.resolve({ reason, graceMs });
  }

  write = () => Promise.resolve();
  closeInput = () => Promise.resolve();
  signal = () => undefined;
  resize = () => undefined;

  async #run(program: Program): Promise<Outcome> {
    const run = this.#provider.options.run ?? printCode;
    const killed = this.#killed.promise.then(({ reason }) => ({ ...death, reason }));
    const end = await (this.#provider.options.ignoresKill
      ? run(program)
      : Promise.race([run(program), killed]));
    this.#hasEnded = true;
    this.#wake();
    return { ...exited, ...(typeof end === "number" ? { exitCode: end } : end) };
  }

  #push(notice: ExecNotice): Promise<void> {
    return new Promise((taken) => {
      this.#queue.push({ notice, taken });
      this.#wake();
    });
  }

  async *#read(): AsyncGenerator<ExecNotice> {
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) {
        next.taken();
        yield next.notice;
      } else if (this.#hasEnded) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}

const exited: Outcome = {
  exitCode: 0,
  signal: null,
  reason: "exit",
  limitsHit: [],
  violations: [],
  usage: { cpu_ms: 1, memory_peak_bytes: 1024, pids_peak: 1 },
  durationMs: 5,
  killed: 0,
};

const death: Partial<Outcome> = { exitCode: null, signal: "SIGTERM" };

async function printCode(program: Program): Promise<End> {
  await program.out(program.code);
  return 0;
}

/** One language, `python`, whose code goes to main.py. */
export const fakeLanguages: JobLanguages = {
  resolve: (name) => {
    if (name === "python") return python;
    throw new CprgError("failed_precondition", `Cannot run language "${name}": not found`, {
      reason: "NO_INTERPRETER",
      field: "language",
      hint: `apt-get install ${name}`,
    });
  },
  list: () => [python],
};

const python: JobLanguage = {
  name: "python",
  version: "3.11.2",
  executable: "/usr/bin/python3",
  fileName: "main.py",
  variables: { PYTHONUNBUFFERED: "1" },
  command: (args) => ["main.py", ...args],
};
