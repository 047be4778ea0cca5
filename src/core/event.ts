/** Events of a run: what is recorded, in which shape, and which bounds hold. */

import type { AuditRecord } from "./audit.ts";
import type { Limits } from "./limits.ts";
import type { LimitHit, Usage, Violation } from "./outcome.ts";
import type { Reason, TerminalStatus } from "./reasons.ts";
import type { TaskEndStatus, TaskStatus } from "./task.ts";

/** Most bytes of program output in one row. */
export const OUTPUT_ROW_BYTES_MAX = 64 * 1024;
/** Longest that a byte of output waits for more before it becomes a row. */
export const OUTPUT_FLUSH_MS = 20;
/** Rows a stream may take before rows coalesce into full ones. */
export const OUTPUT_ROWS_MAX = 20_000;

/** What kind of run a subject is. */
export const SUBJECT_KINDS = ["job", "exec", "task", "dispatch", "audit"] as const;
/** One of {@link SUBJECT_KINDS}. */
export type SubjectKind = (typeof SUBJECT_KINDS)[number];
/** `job:ID`, `exec:ID`, `task:ID`, `dispatch:ID` or `audit:NAME`: whose log an event is in. */
export type Subject = `${SubjectKind}:${string}`;

/** The layers that were in force, by name. */
export type Layers = Readonly<Record<string, boolean | string>>;

/** Data of each kind of event. `stdout` and `stderr` hold text, the others an object. */
export interface EventData {
  queued: { readonly language: string; readonly limits: Limits };
  started: {
    readonly layers: Layers;
    readonly missing: readonly string[];
    readonly limits: Limits;
    readonly interpreter: string | null;
  };
  stdout: string;
  stderr: string;
  usage: {
    readonly cpu_ms: number;
    readonly memory_bytes: number | null;
    readonly pids: number | null;
  };
  violation: Violation;
  limit: LimitHit;
  /** Each status of a task before its end, in the log of `task:ID`. */
  task: {
    readonly status: Exclude<TaskStatus, TaskEndStatus>;
    /** Of the last claim; 0 before the first. */
    readonly epoch: number;
    readonly worker_id: string | null;
    /** Why the claim before failed. */
    readonly reason: Reason | null;
    readonly error?: string;
  };
  /** In the log of `audit:server` alone. */
  audit: AuditRecord;
  truncated: { readonly stream: "stdout" | "stderr"; readonly limit_bytes: number };
  finished: {
    readonly status: TerminalStatus;
    readonly exit_code: number | null;
    readonly signal: string | null;
    readonly reason: Reason;
    readonly duration_ms: number;
    /** Processes that outlived the main program and had to be killed. */
    readonly killed: number;
    readonly usage: Usage | null;
    /** Why it could not run, when `reason` says that it could not. */
    readonly error?: { readonly message: string; readonly step?: string; readonly hint?: string };
  };
}

/** Name of an event. */
export type EventKind = keyof EventData;

/** An event before it has its place in the log. */
export type EventDraft = {
  [K in EventKind]: {
    readonly kind: K;
    readonly data: EventData[K];
    /** `data` is base64 because the bytes are no UTF-8. */
    readonly encoding?: "base64";
  };
}[EventKind];

/**
 * Program output before it is text (`output-text.ts`). The bytes belong to whoever is given them, and
 * may be gone for whoever gave them.
 */
export interface OutputBytes {
  readonly kind: "stdout" | "stderr";
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** An event as it is stored and sent: one NDJSON line. */
export interface EventRow {
  /** From 1, without a gap. */
  readonly seq: number;
  /** RFC 3339, UTC, milliseconds. */
  readonly at: string;
  readonly kind: EventKind;
  readonly data: EventData[EventKind];
  readonly encoding?: "base64";
  /** SHA-256, hexadecimal, over the previous hash and this line's other bytes (`chain.ts`). */
  readonly hash: string;
}
