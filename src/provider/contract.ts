/**
 * The lease contract: everything that runs code implements it, everything that needs code run uses
 * it. `SandboxProvider`, `SandboxContext`, `SandboxLease`, `Command` and `FileTransfers` are what
 * SDK users see; `ExecLease` is the richer lease beneath, and `invoke` is one adapter over its
 * `exec`.
 */

import type { Layers } from "../core/event.ts";
import type { LimitName, Limits } from "../core/limits.ts";
import type { LimitHit, Outcome, Violation } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";

/** Bytes of the tail that `invoke` keeps per stream when the command does not say. */
export const RETAIN_BYTES_DEFAULT = 1024 * 1024;

/** Names of providers: a DNS label. */
export const PROVIDER_NAME = /^[a-z][a-z0-9-]{0,62}$/;

/** What a lease can do beyond the obligations; used only where declared. */
export type LeaseCapability = "liveInput" | "attach" | "batchTransfers";

/** Opens environments. */
export interface SandboxProvider {
  readonly name: string;
  /** `mounted`: works on the host's worktree; `remote`: starts empty. */
  readonly placement: "mounted" | "remote";
  /** Variables of every command in every lease. */
  readonly variables?: Readonly<Record<string, string>>;
  /**
   * Opens one environment. Allocates nothing when it rejects.
   *
   * @throws CprgError naming what failed and how to mend it
   */
  acquire(context: SandboxContext): Promise<SandboxLease>;
  /** Removes a sandbox that a crashed coordinator registered; succeeds when called again. */
  recover?(
    resourceId: string,
    options?: { readonly signal?: AbortSignal; readonly deadlineMs?: number },
  ): Promise<void>;
}

/** What a sandbox is opened for. */
export interface SandboxContext {
  readonly repository: string;
  readonly directory: string;
  readonly gitDirectories: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Present only in a durable race: awaited exactly once, before anything is allocated. */
  registerRecovery?(resourceId: string): Promise<void>;
}

/** Bounds of one transfer. */
export interface TransferOptions {
  readonly signal?: AbortSignal;
  /** Relative, in milliseconds. */
  readonly deadlineMs?: number;
}

/** Files in and out: exact bytes, modes and symlinks; staged, then renamed. */
export interface FileTransfers {
  /** Copies a host file or tree to a path inside. */
  upload(source: string, destination: string, options?: TransferOptions): Promise<void>;
  /** Copies a file or tree inside to a host path. */
  download(source: string, destination: string, options?: TransferOptions): Promise<void>;
}

/** Kind of an entry of a tree. */
export type EntryType = "file" | "directory" | "link";

/** What comes before an entry's content. */
export interface EntryHead {
  readonly type: EntryType;
  /** Permission bits. */
  readonly mode: number;
  /** Relative; empty for the one thing that is transferred itself. */
  readonly path: string;
  /** Bytes of content: a file's, or a link's target. */
  readonly size: number;
}

/** A head, or a piece of the content of the last one. */
export type EntryPart = EntryHead | Uint8Array;

/** Takes the entries of a tree; each call is awaited before more is read. */
export interface EntrySink {
  entry(head: EntryHead): Promise<void>;
  /** A piece of the content of the last entry. */
  content(bytes: Uint8Array): Promise<void>;
}

/** How entries are put at a place. */
export interface PutOptions extends TransferOptions {
  /** Into the directory that is there, entry by entry; without it the place itself is replaced. */
  readonly isMerge?: boolean;
}

/** Files in and out as entries, for whoever has no path on this host; nothing is buffered. */
export interface EntryTransfers {
  /**
   * Makes a file or tree at a path inside out of entries: directories before what is in them, of
   * each exactly as much content as its head says. A stream that throws leaves nothing half-made.
   */
  putEntries(
    entries: AsyncIterable<EntryPart>,
    destination: string,
    options?: PutOptions,
  ): Promise<void>;
  /** Hands a file or tree inside to a sink. */
  takeEntries(source: string, sink: EntrySink, options?: TransferOptions): Promise<void>;
  /** Removes a file, link or tree; one that is not there is no error. */
  remove(path: string, options?: TransferOptions): Promise<void>;
}

/** An open environment. */
export interface SandboxLease extends FileTransfers {
  /** Working directory and home inside. */
  readonly root: string;
  readonly home: string;
  readonly capabilities: readonly LeaseCapability[];
  /** Runs a command; resolves when its process exits, with its real status. */
  invoke(command: Command): Promise<CommandResult>;
  /** Frees everything, also when the sandbox is already gone; a second call resolves. */
  release(): Promise<void>;
}

/** One command of `invoke`. */
export interface Command {
  readonly executable: string;
  readonly arguments?: readonly string[];
  /** Default: the lease's root. */
  readonly directory?: string;
  readonly variables?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array;
  readonly signal?: AbortSignal;
  /** Relative, in milliseconds. */
  readonly deadlineMs?: number;
  /** Sees output as it comes, decoded as UTF-8 over chunk borders. */
  readonly observe?: (channel: OutputChannel, text: string) => void;
  /** Bytes of the tail kept per stream, default {@link RETAIN_BYTES_DEFAULT}. */
  readonly retain?: number;
}

/** Result of `invoke`. A status of 128 + n means that signal n ended it. */
export interface CommandResult {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Where output came from. */
export type OutputChannel = "stdout" | "stderr";

/** One read of output. */
export interface OutputChunk {
  readonly channel: OutputChannel;
  readonly bytes: Uint8Array;
}

/** What an exec reports, in order of arrival. The bytes of output are its one reader's own. */
export type ExecNotice =
  | { readonly type: "output"; readonly channel: OutputChannel; readonly bytes: Uint8Array }
  | { readonly type: "truncated"; readonly channel: OutputChannel; readonly limitBytes: number }
  | { readonly type: "limit"; readonly hit: LimitHit }
  | { readonly type: "violation"; readonly violation: Violation }
  | {
      readonly type: "usage";
      readonly cpuMs: number;
      readonly memoryBytes: number | null;
      readonly pids: number | null;
    };

/** Size of a terminal in characters, each from 1 to 65535. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** What to execute. */
export interface ExecSpec {
  /** Path, or a name looked up in the PATH of `variables`. */
  readonly executable: string;
  readonly arguments: readonly string[];
  readonly directory?: string;
  /** The whole environment; nothing is inherited. */
  readonly variables: Readonly<Record<string, string>>;
  /** `pipe` keeps standard input open for `write`; bytes are written and closed; default /dev/null. */
  readonly stdin?: "pipe" | Uint8Array;
  /**
   * Gives it a terminal of this size, its controlling one: input is written to it, `stdin` is not
   * used, and all output comes as `stdout`.
   */
  readonly terminal?: TerminalSize;
  /** Chooses the profile of system calls where the engine has one for it; default `argv`. */
  readonly language?: string;
  /** Gives up the start, which then throws `canceled`; an exec that runs is ended with `kill`. */
  readonly signal?: AbortSignal;
  /** Bounds of this exec; the sandbox's own stand for what is missing. */
  readonly limits?: Partial<Pick<Limits, ExecLimitName>>;
}

/** Limits that an exec may have of its own. */
export type ExecLimitName = Extract<LimitName, "wall_seconds" | "cpu_seconds" | "output_kb">;

/** A program that runs. */
export interface Exec {
  /**
   * Output and notices, once, to one reader. Ends when every writer is gone. A reader that does not
   * read holds back the program, not memory.
   */
  readonly notices: AsyncIterable<ExecNotice>;
  /** The pid that the program itself sees. */
  readonly pid: number;
  /** Writes to standard input; resolves when the kernel took the bytes. */
  write(bytes: Uint8Array): Promise<void>;
  /** Ends standard input; on a terminal it types the end-of-file character (termios(3), VEOF). */
  closeInput(): Promise<void>;
  /**
   * Changes the size of its terminal; nothing happens after its end.
   *
   * @throws CprgError `failed_precondition` when it has none
   */
  resize(size: TerminalSize): void;
  /** Sends a signal (`SIGINT`) to the main process. */
  signal(name: string): void;
  /**
   * Ends it: SIGTERM to the main process, after `graceMs` SIGKILL to everything of this exec. The
   * reason becomes the outcome's, unless the program had already exited. Calling again shortens
   * the grace and does not change the reason.
   */
  kill(reason: Reason, options?: { readonly graceMs?: number }): void;
  /** Resolves when every process of this exec is gone; never rejects. */
  readonly outcome: Promise<Outcome>;
}

/** A lease that is held for programs and files of others, on this host or elsewhere. */
export interface HeldLease extends SandboxLease, EntryTransfers {
  /** What is in force here. */
  readonly layers: Layers;
  /** Guarantees that are not. */
  readonly missing: readonly string[];
  /** False: of the limits of its programs only time and output hold. Default: true. */
  readonly enforcesLimits?: boolean;
  /** Beneath the variables of its programs; without it those of a sandbox of this host. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Aborted when it has ended, also by itself; without it whoever uses it finds out. */
  readonly gone?: AbortSignal;
  /**
   * Starts a program.
   *
   * @throws CprgError with `setup` when it never ran; with reason SANDBOX_GONE and no `setup` when
   *   the sandbox ended and it may have
   */
  exec(spec: ExecSpec): Promise<Exec>;
}

/** A lease of the local engine. */
export interface ExecLease extends HeldLease {
  /** It was built before anyone asked for it, and may have died while it waited. */
  readonly wasWaiting?: boolean;
  /** Puts one file (from memory) into the sandbox, by a process inside. */
  putFile(path: string, content: Uint8Array, mode?: number): Promise<void>;
  /**
   * Regular files beneath `/workspace/out`, when no exec runs. Links are never followed.
   *
   * @throws CprgError `failed_precondition` while an exec runs
   */
  artifacts(): Promise<readonly Artifact[]>;
}

/** A file that a program left in `/workspace/out`. */
export interface Artifact {
  /** Relative to `/workspace/out`; hostile text. */
  readonly path: string;
  readonly size: number;
  readonly mode: number;
  /** Its bytes, `size` at most, until the lease is released. */
  read(): AsyncIterable<Uint8Array>;
}

/** A provider of richer leases, with limits: the local engine and the worker pool. */
export interface ExecProvider {
  readonly name: string;
  /**
   * Waits until the limits fit beside those of every open sandbox, and keeps the place. Who holds the
   * least is served first.
   *
   * @throws CprgError `failed_precondition` when they can never fit here
   */
  reserve(limits: Limits, options?: ReserveOptions): Promise<Reservation>;
  /** Opens a sandbox in a reserved place; the place is free again after the lease's release. */
  open(reservation: Reservation, options?: OpenOptions): Promise<ExecLease>;
}

/** How a sandbox is opened. */
export interface OpenOptions {
  readonly signal?: AbortSignal;
  /** Built now, even where one waits. */
  readonly isNew?: boolean;
}

/** How a place is asked for. */
export interface ReserveOptions {
  /** Ends the wait. */
  readonly signal?: AbortSignal;
  /** For whom, where several share a host. */
  readonly tenant?: string;
}

/** A place that admission granted. */
export interface Reservation {
  readonly limits: Limits;
  /** Gives the place back when no sandbox was opened in it; idempotent. */
  cancel(): void;
}
