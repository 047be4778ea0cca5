/**
 * What the store's client and its Worker say to each other. One batch is outstanding at a time, so
 * results answer requests by position and need no ids.
 */

import type { Subject } from "../core/event.ts";
import type { EndedExec, ExecRecord } from "../core/exec.ts";
import type { Job, JobOwner, JobSpec } from "../core/job.ts";
import type { KeyChange, StoredKey } from "../core/key.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Status } from "../core/reasons.ts";
import type { SandboxEnd, SandboxRecord } from "../core/sandbox.ts";
import type { Task, TaskChange } from "../core/task.ts";
import type { StoredWorkerToken } from "../core/worker-token.ts";
import type {
  EarlierRequest,
  ExecPage,
  ExecQuery,
  JobPage,
  JobQuery,
  LogHead,
  OnceRequest,
  PlacedQuery,
  Pruned,
  SandboxPage,
  SandboxQuery,
  TaskPage,
  TaskQuery,
  TenantShare,
  TimedDraft,
  UnfinishedQuery,
} from "./contract.ts";
import type { WireError } from "./wire-error.ts";
import type { WireLines } from "./wire-lines.ts";

/** Most requests in one batch, which is one transaction. */
export const BATCH_REQUESTS_MAX = 1024;
/** Rough size of inputs or answers at which a batch takes no more; a larger request goes alone. */
export const BATCH_BYTES_MAX = 8 * 1024 * 1024;
/** Most requests that wait for their batch; more are refused. */
export const WAITING_REQUESTS_MAX = 16_384;
/** Rough size of requests that may wait for their batch; more are refused. */
export const WAITING_BYTES_MAX = 256 * 1024 * 1024;

/** Counters of the Worker since it opened the file. */
export interface StoreStats {
  /** Transactions that were committed for requests that may write: at most one sync each. */
  readonly commits: number;
  /** Requests that were answered. */
  readonly requests: number;
  /** Lines that were appended to logs and committed. */
  readonly eventRows: number;
}

/** Every operation with what it takes and gives. */
export interface StoreOps {
  append: {
    /** Many small ones as JSON of `TimedDraft[]`: objects are dear to clone, one text is not. */
    input: {
      readonly subject: Subject;
      readonly drafts: string | readonly TimedDraft[];
      readonly isSilent: boolean;
    };
    output: WireLines;
  };
  read: {
    input: {
      readonly subject: Subject;
      readonly fromSeq: number;
      readonly limit: number;
      readonly maxBytes: number;
    };
    output: WireLines;
  };
  head: { input: { readonly subject: Subject }; output: LogHead | null };
  insert: { input: { readonly job: Job; readonly spec: JobSpec }; output: null };
  insertOnce: {
    input: { readonly job: Job; readonly spec: JobSpec; readonly request: OnceRequest };
    output: EarlierRequest | null;
  };
  earlier: {
    input: { readonly tenant: string; readonly key: string; readonly since: number };
    output: EarlierRequest | null;
  };
  get: { input: { readonly id: string }; output: Job | null };
  spec: { input: { readonly id: string }; output: JobSpec | null };
  list: { input: JobQuery; output: JobPage };
  next: {
    input: { readonly busyTenants: readonly string[]; readonly shares: readonly TenantShare[] };
    output: Job | null;
  };
  placed: { input: PlacedQuery; output: readonly Job[] };
  storedBytes: { input: { readonly tenant: string }; output: number };
  insertKey: { input: StoredKey; output: null };
  listKeys: { input: null; output: readonly StoredKey[] };
  changeKey: {
    input: { readonly id: string; readonly change: KeyChange };
    output: StoredKey | null;
  };
  removeKeys: { input: { readonly ids: readonly string[] }; output: null };
  queuedCount: { input: { readonly tenant: string | null }; output: number };
  counts: { input: null; output: Readonly<Record<Status, number>> };
  start: {
    input: {
      readonly id: string;
      readonly instance: string;
      readonly at: number;
      readonly workerId: string | null;
    };
    output: (Job & { owner: JobOwner }) | null;
  };
  finish: {
    input: {
      readonly id: string;
      readonly owner: JobOwner | null;
      readonly outcome: Outcome;
      readonly at: number;
    };
    output: Job | null;
  };
  orphans: { input: { readonly livingInstances: readonly string[] }; output: readonly Job[] };
  insertSandbox: { input: { readonly sandbox: SandboxRecord }; output: null };
  getSandbox: { input: { readonly id: string }; output: SandboxRecord | null };
  listSandboxes: { input: SandboxQuery; output: SandboxPage };
  endSandbox: {
    input: { readonly id: string; readonly reason: SandboxEnd; readonly at: number };
    output: SandboxRecord | null;
  };
  orphanSandboxes: {
    input: { readonly livingInstances: readonly string[] };
    output: readonly SandboxRecord[];
  };
  insertExec: { input: { readonly exec: ExecRecord }; output: null };
  getExec: { input: { readonly id: string }; output: ExecRecord | null };
  listExecs: { input: ExecQuery; output: ExecPage };
  finishExec: {
    input: { readonly id: string; readonly outcome: Outcome; readonly at: number };
    output: EndedExec | null;
  };
  orphanExecs: {
    input: { readonly livingInstances: readonly string[] };
    output: readonly ExecRecord[];
  };
  insertTask: {
    input: { readonly task: Task; readonly sealedEnv: Uint8Array | null };
    output: null;
  };
  getTask: { input: { readonly id: string }; output: Task | null };
  taskEnv: { input: { readonly id: string }; output: Uint8Array | null };
  listTasks: { input: TaskQuery; output: TaskPage };
  changeTask: { input: { readonly id: string; readonly change: TaskChange }; output: Task };
  unfinishedTasks: { input: UnfinishedQuery; output: readonly Task[] };
  insertWorkerToken: { input: StoredWorkerToken; output: null };
  listWorkerTokens: { input: null; output: readonly StoredWorkerToken[] };
  revokeWorkerToken: {
    input: { readonly id: string; readonly at: number };
    output: StoredWorkerToken | null;
  };
  removeWorkerTokens: { input: { readonly before: number }; output: number };
  prune: { input: { readonly before: number }; output: Pruned };
  check: { input: null; output: null };
  stats: { input: null; output: StoreStats };
}

/** Name of an operation. */
export type StoreOp = keyof StoreOps;

/** One operation to do. */
export type StoreRequest = { [K in StoreOp]: { op: K; input: StoreOps[K]["input"] } }[StoreOp];

/** Does one operation, synchronously. */
export type StoreHandlers = {
  readonly [K in StoreOp]: (input: StoreOps[K]["input"]) => StoreOps[K]["output"];
};

/** How one operation went. */
export type StoreResult = { readonly output: unknown } | { readonly error: WireError };

/** From the client to the Worker. */
export type ToWorker =
  | { readonly type: "open"; readonly path: string }
  | {
      readonly type: "batch";
      readonly requests: readonly StoreRequest[];
      /** Rough size of what is in them. */
      readonly inputBytes: number;
    }
  | { readonly type: "close" };

/** From the Worker to the client. */
export type FromWorker =
  | { readonly type: "opened" }
  | { readonly type: "refused"; readonly error: WireError }
  | { readonly type: "results"; readonly results: readonly StoreResult[] }
  | { readonly type: "closed" };
