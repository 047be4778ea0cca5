/** The lease of a local sandbox: programs, files in and out, and the end of it all. */

import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Layers } from "../core/event.ts";
import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type {
  Artifact,
  Command,
  CommandResult,
  EntryPart,
  EntrySink,
  Exec,
  ExecLease,
  ExecSpec,
  LeaseCapability,
  PutOptions,
  TransferOptions,
} from "../provider/contract.ts";
import { invokeThrough } from "../provider/invoke.ts";
import { encodeEnd, encodeEntry } from "./archive.ts";
import { listArtifacts } from "./artifacts.ts";
import { boundedSink } from "./bounded-sink.ts";
import { BytesBound } from "./bytes-bound.ts";
import { downloadTree } from "./download.ts";
import type { LocalExec } from "./exec.ts";
import { FIRST_ID, startExec } from "./exec-start.ts";
import { sandboxGone } from "./init-channel.ts";
import { settledWithin } from "./kill-until.ts";
import { BOUNDS } from "./layout.ts";
import type { Native } from "./native.ts";
import { HOME, WORKSPACE, WRITABLE } from "./root-plan.ts";
import type { Sandbox } from "./sandbox.ts";
import type { SeccompFilters } from "./seccomp/filters.ts";
import { pack, remove, type Transfer, unpack } from "./transfer.ts";
import { putEntries, uploadTree } from "./upload.ts";
import { sandboxVariables } from "./variables.ts";

const FILE_MODE = 0o644;
/** Longest that the end waits for what runs before it takes the sandbox away beneath it. */
const IDLE_TIMEOUT_MS = 15_000;

/** What a lease is made of. */
export interface LeaseParts {
  readonly native: Native;
  readonly sandbox: Sandbox;
  readonly limits: Limits;
  readonly layers: Layers;
  readonly missing: readonly string[];
  readonly wasWaiting: boolean;
  readonly log: Log;
  readonly filters: SeccompFilters;
  /** Called when everything is gone. */
  onReleased(): void;
}

/** A lease on a local sandbox. */
export class LocalLease implements ExecLease {
  readonly #parts: LeaseParts;
  readonly #execs = new Map<number, LocalExec>();
  /** Those whose output is not read to its end. */
  readonly #unread = new Set<LocalExec>();
  /** Removals of groups that the end waits for. */
  readonly #removals = new Set<Promise<void>>();
  /** Starts and transfers under way. */
  readonly #pending = new Set<Promise<unknown>>();
  /** Aborted at the end: nothing starts from then on, and transfers stop. */
  readonly #ending = new AbortController();
  #nextId = FIRST_ID;
  #release: Promise<void> | null = null;
  readonly root = WORKSPACE;
  readonly home = HOME;
  readonly capabilities: readonly LeaseCapability[] = [];

  constructor(parts: LeaseParts) {
    this.#parts = parts;
  }

  get layers(): Layers {
    return this.#parts.layers;
  }

  get missing(): readonly string[] {
    return this.#parts.missing;
  }

  get wasWaiting(): boolean {
    return this.#parts.wasWaiting;
  }

  async exec(spec: ExecSpec): Promise<Exec> {
    return await this.#track(() => this.#start(spec));
  }

  invoke(command: Command): Promise<CommandResult> {
    return invokeThrough(this, command, sandboxVariables());
  }

  async putFile(path: string, content: Uint8Array, mode: number = FILE_MODE): Promise<void> {
    const head = encodeEntry({ type: "file", mode, path: "", size: content.length });
    await this.#transfer({ path }, (transfer) =>
      unpack(this.#parts, transfer, [head, content, encodeEnd()]),
    );
  }

  async upload(source: string, destination: string, options?: TransferOptions): Promise<void> {
    const isMerge = WRITABLE.some(({ path }) => path === destination);
    await this.#transfer(
      { path: destination, isMerge, ...(options ? { options } : {}) },
      (transfer) => uploadTree(this.#parts, transfer, source),
    );
  }

  async download(source: string, destination: string, options?: TransferOptions): Promise<void> {
    await this.#transfer({ path: source, ...(options ? { options } : {}) }, (transfer) =>
      downloadTree(this.#parts, transfer, destination),
    );
  }

  async putEntries(
    entries: AsyncIterable<EntryPart>,
    destination: string,
    { isMerge: isMergeWanted = false, ...options }: PutOptions = {},
  ): Promise<void> {
    // What is mounted there cannot be replaced.
    const isMerge = isMergeWanted || WRITABLE.some(({ path }) => path === insidePath(destination));
    await this.#transfer({ path: destination, isMerge, options }, (transfer) =>
      putEntries(this.#parts, transfer, entries),
    );
  }

  async takeEntries(source: string, sink: EntrySink, options?: TransferOptions): Promise<void> {
    await this.#transfer({ path: source, ...(options ? { options } : {}) }, async (transfer) => {
      const op = `take files out of ${transfer.path}`;
      const bytes = BytesBound.ofDisk(this.#parts.sandbox.workspaceFd, op);
      await pack(this.#parts, transfer, boundedSink(sink, bytes));
    });
  }

  async remove(path: string, options?: TransferOptions): Promise<void> {
    await this.#transfer({ path, ...(options ? { options } : {}) }, (transfer) =>
      remove(this.#parts, transfer),
    );
  }

  async artifacts(): Promise<readonly Artifact[]> {
    if (this.#release !== null) throw sandboxGone();
    if (this.#execs.size > 0 || this.#pending.size > 0) {
      throw new CprgError("failed_precondition", "Cannot collect artifacts: a program still runs", {
        reason: "EXEC_RUNS",
        hint: "Wait for the outcome of every exec first",
      });
    }
    return listArtifacts(this.#parts.native, this.#parts.sandbox.workspaceFd);
  }

  release(): Promise<void> {
    this.#release ??= this.#end();
    return this.#release;
  }

  async #start(spec: ExecSpec): Promise<Exec> {
    const id = this.#takeId();
    const exec = await startExec({ ...this.#parts, ending: this.#ending.signal }, spec, id);
    this.#execs.set(id, exec);
    this.#unread.add(exec);
    void exec.drained.then(() => this.#unread.delete(exec));
    void exec.outcome.then(() => this.#ended(id, exec));
    if (this.#release !== null) exec.kill("shutdown");
    return exec;
  }

  async #end(): Promise<void> {
    this.#ending.abort();
    for (const exec of this.#execs.values()) exec.kill("shutdown");
    try {
      await settledWithin(this.#idle(), IDLE_TIMEOUT_MS);
      await Promise.all([this.#parts.sandbox.destroy(), ...this.#removals]);
    } finally {
      for (const exec of this.#unread) exec.abandon();
      this.#parts.onReleased();
    }
  }

  /** Resolves when nothing runs, starts or is moved any more. */
  async #idle(): Promise<void> {
    while (this.#pending.size > 0 || this.#execs.size > 0) {
      const outcomes = [...this.#execs.values()].map((exec) => exec.outcome);
      await Promise.allSettled([...this.#pending, ...outcomes]);
    }
  }

  /** Runs a start or a transfer that the end of the lease waits for. */
  #track<T>(work: () => Promise<T>): Promise<T> {
    if (this.#release !== null) throw sandboxGone();
    if (this.#execs.size + this.#pending.size >= BOUNDS.execs) {
      throw new CprgError(
        "resource_exhausted",
        `Cannot start more than ${BOUNDS.execs} programs and transfers at once in one sandbox`,
        { reason: "EXECS" },
      );
    }
    const done = work();
    this.#pending.add(done);
    const forget = (): void => {
      this.#pending.delete(done);
    };
    void done.then(forget, forget);
    return done;
  }

  #takeId(): number {
    const id = this.#nextId;
    // 32 bits, and 0 is what process 1 uses for itself.
    this.#nextId = id === 0xffff_ffff ? FIRST_ID + 1 : id + 1;
    return id;
  }

  #ended(id: number, exec: LocalExec): void {
    this.#execs.delete(id);
    const removal = exec.removeGroup().catch((error: unknown) => {
      this.#parts.log.warn("group of an exec not removed", { error });
    });
    this.#removals.add(removal);
    void removal.then(() => this.#removals.delete(removal));
  }

  async #transfer(
    wanted: Omit<Transfer, "id">,
    run: (transfer: Transfer) => Promise<void>,
  ): Promise<void> {
    await this.#track(async () => {
      const path = insidePath(wanted.path);
      const signals = [this.#ending.signal, wanted.options?.signal].filter(
        (one) => one !== undefined,
      );
      const options = { ...wanted.options, signal: AbortSignal.any(signals) };
      await run({ ...wanted, id: this.#takeId(), path, options });
    });
  }
}

/** An absolute path inside; relative ones are relative to the workspace. */
function insidePath(path: string): string {
  if (path === "" || path.includes("\0")) {
    throw new CprgError("invalid_argument", "Cannot use an empty path or one with a NUL byte", {
      field: "path",
    });
  }
  const absolute = posix.resolve(WORKSPACE, path);
  const isEscape =
    !path.startsWith("/") && absolute !== WORKSPACE && !absolute.startsWith(`${WORKSPACE}/`);
  if (!isEscape) return absolute;
  throw new CprgError(
    "invalid_argument",
    `Cannot use path ${JSON.stringify(path.slice(0, 256))}: it leads out of ${WORKSPACE}`,
    { field: "path" },
  );
}
