/**
 * What the rest of the house knows of storage. Everything is asynchronous, small, and owned by the
 * contract suites in `test/contract`; no correctness rests on being the only process. SQLite in a
 * Worker is the first implementation, memory the second.
 */

import type { EventDraft, OutputBytes, Subject } from "../core/event.ts";
import type { EndedExec, ExecRecord } from "../core/exec.ts";
import type { Job, JobOwner, JobSpec } from "../core/job.ts";
import type { KeyChange, StoredKey } from "../core/key.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Status } from "../core/reasons.ts";
import type { SandboxEnd, SandboxRecord } from "../core/sandbox.ts";
import type { Task, TaskChange, TaskEndStatus, TaskStatus } from "../core/task.ts";
import type { StoredWorkerToken } from "../core/worker-token.ts";

/** A draft with the time at which it happened, in milliseconds since 1970. */
export interface TimedDraft {
  readonly at: number;
  readonly draft: EventDraft | OutputBytes;
}

/** A committed line of a log, without its newline. */
export interface EventLine {
  readonly seq: number;
  readonly line: string;
}

/** Where a log stands. */
export interface LogHead {
  readonly count: number;
  /** Hash of the last line, or the genesis hash. */
  readonly hash: Uint8Array;
  /** Whether its terminal event is in. */
  readonly complete: boolean;
  /** Head of the tenant's previously finished log when this one finished; null before that. */
  readonly previous: Uint8Array | null;
}

/** How an append is answered. */
export interface AppendOptions {
  /** Nobody asks for the lines: none is given back. */
  readonly isSilent?: boolean;
}

/** Append-only logs, one per subject, hash-chained. */
export interface EventLog {
  /**
   * Commits drafts in order; what is returned is on disk. Calls of one subject keep their order;
   * calls that come together share one commit.
   *
   * @throws CprgError `failed_precondition` after the terminal event, `resource_exhausted` with
   *   reason DISK_FULL when the disk is full
   */
  append(
    subject: Subject,
    drafts: readonly TimedDraft[],
    options?: AppendOptions,
  ): Promise<readonly EventLine[]>;
  /** Lines with `seq >= fromSeq`, at most `limit` lines and about `maxBytes`; at least one if any. */
  read(
    subject: Subject,
    fromSeq: number,
    bounds: { readonly limit: number; readonly maxBytes: number },
  ): Promise<readonly EventLine[]>;
  /** Null when there is no such log. */
  head(subject: Subject): Promise<LogHead | null>;
}

/** One page of jobs, newest first. */
export interface JobPage {
  readonly jobs: readonly Job[];
  /** Opaque; null on the last page. */
  readonly nextCursor: string | null;
}

/** Which jobs to list. */
export interface JobQuery {
  readonly tenant: string;
  readonly limit: number;
  readonly cursor?: string;
  readonly status?: Status;
  readonly language?: string;
  readonly label?: { readonly name: string; readonly value: string };
}

/** A request that a client may send again: the job is made once. */
export interface OnceRequest {
  /** Chosen by the client, its tenant's own. */
  readonly key: string;
  /** What tells bodies apart. */
  readonly bodyHash: string;
  /** Earlier requests of the key count from then on, in milliseconds since 1970. */
  readonly since: number;
}

/** What a request of the same key made. */
export interface EarlierRequest {
  readonly jobId: string;
  readonly bodyHash: string;
}

/** A part of the queue of jobs for workers. */
export interface PlacedQuery {
  readonly limit: number;
  readonly after?: Pick<Job, "createdAt" | "id">;
}

/** What a tenant has of the server now, and when it last got something. */
export interface TenantShare {
  readonly tenant: string;
  /** What runs for it. */
  readonly share: number;
  /** Rises with every job that is given a place; 0 for never. */
  readonly turn: number;
}

/** Jobs and their queue. A change and its event commit together. */
export interface JobStore {
  /** Puts a job into the queue with its `queued` event. */
  insert(job: Job, spec: JobSpec): Promise<void>;
  /**
   * As {@link insert}, unless a request of the job's tenant with the same key made a job already.
   * Both are one commit.
   *
   * @returns null when the job was put in; else what the earlier request made
   */
  insertOnce(job: Job, spec: JobSpec, request: OnceRequest): Promise<EarlierRequest | null>;
  /** What a tenant's request made; null when there was none since `since`, or its job is gone. */
  earlier(
    tenant: string,
    request: Pick<OnceRequest, "key" | "since">,
  ): Promise<EarlierRequest | null>;
  get(id: string): Promise<Job | null>;
  /** After the job's end without files and standard input, and with only the start of long code. */
  spec(id: string): Promise<JobSpec | null>;
  /** @throws CprgError `invalid_argument` for a cursor that is none */
  list(query: JobQuery): Promise<JobPage>;
  /**
   * The oldest queued job of the tenant whose turn it is, among those not in `busyTenants`: the one
   * with the smallest `share`, then with the smallest `turn`, then with the oldest job. A tenant
   * that is not among the shares has 0 and 0. Changes nothing. Jobs for workers are left out.
   */
  next(busyTenants: readonly string[], shares?: readonly TenantShare[]): Promise<Job | null>;
  /** Queued jobs for workers, oldest first; those after a job where one is named. */
  placed(query: PlacedQuery): Promise<readonly Job[]>;
  /** How many jobs wait, of one tenant or of all. */
  queuedCount(tenant?: string): Promise<number>;
  /** Counts by status, of all tenants. */
  counts(): Promise<Readonly<Record<Status, number>>>;
  /**
   * queued -> running, with owner and the next epoch.
   *
   * @param workerId the worker that it runs on; default: this host
   * @returns null when it is not queued any more
   */
  start(
    id: string,
    instance: string,
    at: number,
    workerId?: string,
  ): Promise<(Job & { owner: JobOwner }) | null>;
  /**
   * To its terminal status, with the `finished` event and the tenant's chain, in one commit.
   *
   * @param owner who runs it; null: only if it is still queued
   * @returns null, and changes nothing, when it is terminal or belongs to another owner or epoch
   */
  finish(id: string, owner: JobOwner | null, outcome: Outcome, at: number): Promise<Job | null>;
  /** Jobs that run under an instance that is not among the living. */
  orphans(livingInstances: readonly string[]): Promise<readonly Job[]>;
}

/** One page of sandboxes, newest first. */
export interface SandboxPage {
  readonly sandboxes: readonly SandboxRecord[];
  /** Opaque; null on the last page. */
  readonly nextCursor: string | null;
}

/** Which sandboxes to list. */
export interface SandboxQuery {
  readonly tenant: string;
  readonly limit: number;
  readonly cursor?: string;
  /** Only open ones. */
  readonly isOpen?: boolean;
}

/** Sandboxes that clients hold open, and what is left of those that ended. */
export interface SandboxStore {
  /** @throws CprgError `already_exists` when one has the id */
  insert(sandbox: SandboxRecord): Promise<void>;
  get(id: string): Promise<SandboxRecord | null>;
  /** @throws CprgError `invalid_argument` for a cursor that is none */
  list(query: SandboxQuery): Promise<SandboxPage>;
  /** @returns null, and changes nothing, when there is none or it has ended */
  end(id: string, reason: SandboxEnd, at: number): Promise<SandboxRecord | null>;
  /** Open ones of an instance that is not among the living. */
  orphans(livingInstances: readonly string[]): Promise<readonly SandboxRecord[]>;
}

/** One page of a sandbox's execs, newest first. */
export interface ExecPage {
  readonly execs: readonly ExecRecord[];
  /** Opaque; null on the last page. */
  readonly nextCursor: string | null;
}

/** Which execs to list. */
export interface ExecQuery {
  readonly sandboxId: string;
  readonly limit: number;
  readonly cursor?: string;
}

/** Execs of sandboxes. An end and its event commit together. */
export interface ExecStore {
  /** @throws CprgError `already_exists` when one has the id */
  insert(exec: ExecRecord): Promise<void>;
  get(id: string): Promise<ExecRecord | null>;
  /** @throws CprgError `invalid_argument` for a cursor that is none */
  list(query: ExecQuery): Promise<ExecPage>;
  /**
   * To its terminal status, with the `finished` event and the tenant's chain, in one commit.
   *
   * @returns null, and changes nothing, when there is none or it has ended
   */
  finish(id: string, outcome: Outcome, at: number): Promise<EndedExec | null>;
  /** Those that run under an instance that is not among the living. */
  orphans(livingInstances: readonly string[]): Promise<readonly ExecRecord[]>;
}

/** What one step of {@link Store.prune} did. */
export interface Pruned {
  /** Runs that are gone, with all that was kept of them but the rest of their lines. */
  readonly runs: number;
  /** Lines of their logs that are gone. */
  readonly events: number;
  /** Nothing is left to remove, and the file is as small as it gets. */
  readonly isDone: boolean;
}
/** API keys that were made here, by their hash. */
export interface KeyStore {
  /**
   * Keeps a new key.
   *
   * @throws CprgError `already_exists` for an id or hash that is there, `resource_exhausted` with
   *   reason KEYS_FULL when there are {@link STORED_KEYS_MAX}
   */
  insert(key: StoredKey): Promise<void>;
  /** Every key, revoked ones too, oldest first. */
  list(): Promise<readonly StoredKey[]>;
  /**
   * Revokes, lets end or marks as used. Nothing is taken back: a revocation and an end can only
   * come earlier, a use only be later.
   *
   * @returns the key as it is then; null when there is none
   */
  change(id: string, change: KeyChange): Promise<StoredKey | null>;
  /** Removes keys; those that are not there are no error. */
  remove(ids: readonly string[]): Promise<void>;
}

/** Keys that a store keeps, revoked ones too. */
export const STORED_KEYS_MAX = 10_000;

/** One page of tasks, newest first. */
export interface TaskPage {
  readonly tasks: readonly Task[];
  /** Opaque; null on the last page. */
  readonly nextCursor: string | null;
}

/** Which tasks to list. */
export interface TaskQuery {
  readonly tenant: string;
  readonly limit: number;
  readonly cursor?: string;
  readonly status?: TaskStatus;
}

/** Tasks. A change and its event commit together, before the call returns. */
export interface TaskStore {
  /**
   * Puts a task into the queue.
   *
   * @param sealedEnv its environment as only the control plane can read it; null: none
   * @throws CprgError `already_exists` when one has the id, or had it; `failed_precondition` when it
   *   does not wait
   */
  insert(task: Task, sealedEnv: Uint8Array | null): Promise<void>;
  get(id: string): Promise<Task | null>;
  /** The environment while it was not delivered; null afterwards, and when there is none. */
  sealedEnv(id: string): Promise<Uint8Array | null>;
  /** @throws CprgError `invalid_argument` for a cursor that is none */
  list(query: TaskQuery): Promise<TaskPage>;
  /**
   * Changes a task; what runs or has ended loses its environment.
   *
   * @throws CprgError `not_found`, and what `reduceTask` throws: then nothing has changed
   */
  change(id: string, change: TaskChange): Promise<Task>;
  /** Those of one status, oldest first, after a place. */
  unfinished(query: UnfinishedQuery): Promise<readonly Task[]>;
}

/** Which tasks that have not ended. */
export interface UnfinishedQuery {
  readonly status: Exclude<TaskStatus, TaskEndStatus>;
  readonly limit: number;
  readonly after?: { readonly createdAt: number; readonly id: string };
}

/** Tasks that one call of {@link TaskStore.unfinished} gives at most. */
export const UNFINISHED_MAX = 1000;

/** Tokens of workers that were minted here: what they say, and which were revoked. */
export interface WorkerTokenStore {
  /**
   * Keeps a new token.
   *
   * @throws CprgError `already_exists` for an id that is there, `resource_exhausted` with reason
   *   TOKENS_FULL when there are {@link WORKER_TOKENS_MAX}
   */
  insert(token: StoredWorkerToken): Promise<void>;
  /** Every token, revoked ones too, oldest first. */
  list(): Promise<readonly StoredWorkerToken[]>;
  /**
   * Revokes a token; the first revocation stands.
   *
   * @returns the token as it is then; null when there is none
   */
  revoke(id: string, at: number): Promise<StoredWorkerToken | null>;
  /** Removes tokens that ended before a time, with their revocations; gives how many. */
  removeExpired(before: number): Promise<number>;
}

/** Tokens of workers that a store keeps, revoked ones too. */
export const WORKER_TOKENS_MAX = 10_000;

/** Everything that is kept. */
export interface Store {
  readonly workerTokens: WorkerTokenStore;
  readonly keys: KeyStore;
  readonly jobs: JobStore;
  readonly sandboxes: SandboxStore;
  readonly execs: ExecStore;
  readonly tasks: TaskStore;
  readonly events: EventLog;
  /**
   * Bytes that are kept for a tenant, as they are stored: logs as they grow, specs of jobs, inputs and
   * results of tasks, limits and labels of sandboxes.
   */
  storedBytes(tenant: string): Promise<number>;
  /**
   * One bounded step of removing runs that ended before a time. What is removed is not found any
   * more; heads of tenants' chains stay, so that what is kept can still be verified.
   *
   * @param before milliseconds since 1970
   */
  prune(before: number): Promise<Pruned>;
  /**
   * Looks whether jobs and events can be written now.
   *
   * @throws CprgError why not: reason STORE_DIED, STORE_CLOSED or DISK_FULL
   */
  check(): Promise<void>;
  /** Finishes what was begun and closes the file. */
  close(): Promise<void>;
}
