/**
 * The control plane as those see it who embed it: tasks go in, a runner drives a claimed worker for
 * each, an end comes out. `control-plane.ts` implements it; HTTP, CLI and runners know only this.
 */

import type { Json, Task, TaskStatus } from "../core/task.ts";
import type { SandboxLease } from "../provider/contract.ts";
import type { WaitingCode } from "./scheduler.ts";

/** Why a task waits, and what would help, for people. */
export interface WaitingFor {
  readonly code: WaitingCode;
  readonly detail: string;
}

/** A task as it is seen: frozen, and of one moment. */
export interface TaskView extends Task {
  /** Only of a task that is queued. */
  readonly waiting?: WaitingFor;
}

/** What is submitted beside the input. */
export interface SubmitOptions {
  /** Default: a new one. An id is accepted once, also over restarts. */
  readonly id?: string;
  /** Default: `default`. */
  readonly tenant?: string;
  /** Name of a runner that was set; default: the only one. */
  readonly runner?: string;
  /** What a worker must have. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Variables of the claim: sealed while the task is queued, erased when they are delivered. */
  readonly env?: Readonly<Record<string, string>>;
  /** Cloned into the claim's root before the runner starts; https and ssh only. */
  readonly repoUrl?: string;
  readonly ref?: string;
}

/** What a runner works with. */
export interface RunnerContext {
  readonly task: TaskView;
  /** The claim as a lease: programs and files of the worker. Released when the runner has ended. */
  readonly lease: SandboxLease;
  /** Aborted, with the CprgError that says why, when the task is cancelled or its claim is lost. */
  readonly signal: AbortSignal;
  /** Says something in the task's log, for people: at most `RUNNER_NOTE_BYTES_MAX`. */
  note(text: string): Promise<void>;
}

/**
 * Does a task: what it resolves with is the task's result and must be JSON (else the task fails with
 * `result_not_serializable`); what it throws fails the task, with the reason of a CprgError that has
 * one of `REASONS`, else with `runner_error`.
 */
export type Runner = (input: Json, context: RunnerContext) => Promise<unknown>;

/** Which tasks to list. */
export interface TaskListQuery {
  readonly tenant: string;
  readonly limit: number;
  readonly cursor?: string;
  readonly status?: TaskStatus;
}

/** One page of tasks, newest first. */
export interface TaskViews {
  readonly tasks: readonly TaskView[];
  readonly nextCursor: string | null;
}

/** What a worker is doing. */
export type WorkerStatus = "idle" | "busy" | "draining" | "quarantined" | "reattaching" | "lost";

/** A claim of a worker. */
export interface WorkerClaimView {
  readonly taskId: string;
  readonly epoch: number;
}

/** A worker as it is seen. Times are milliseconds since 1970. */
export interface WorkerView {
  readonly id: string;
  readonly name: string;
  /** Of its token, and of itself where the token says nothing. */
  readonly labels: Readonly<Record<string, string>>;
  /** Tenants that it works for; null: every one. */
  readonly tenants: readonly string[] | null;
  readonly status: WorkerStatus;
  readonly version: string;
  readonly slots: number;
  readonly claims: readonly WorkerClaimView[];
  readonly connectedAt: number | null;
  readonly lastSeenAt: number;
  /** Claims in a row that failed. */
  readonly failures: number;
}

/** What a token for workers is to say. */
export interface WorkerTokenRequest {
  /** One id, or a pattern whose last character is `*`; default `*`. */
  readonly workerId?: string;
  /** These win over what a worker says of itself. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Tenants that its workers serve; null or left out: shared by all. */
  readonly tenants?: readonly string[] | null;
  /** Seconds until it ends; at most `WORKER_TOKEN_SECONDS_MAX`. */
  readonly expiresInSeconds: number;
  /** For people. */
  readonly name?: string;
}

/** A token as it is listed: never the token itself. Times are milliseconds since 1970. */
export interface WorkerTokenView {
  readonly id: string;
  readonly name: string;
  readonly workerId: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly tenants: readonly string[] | null;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly revokedAt: number | null;
}

/** A token that was just made: the only time that it is known. */
export interface MintedWorkerToken {
  readonly token: string;
  readonly view: WorkerTokenView;
}

/** Where the bridge listens. */
export interface BridgeAddress {
  readonly host: string;
  readonly port: number;
}

/** Tasks, workers and their tokens. What is said to have happened is committed. */
export interface TaskControl {
  /**
   * Puts a task into the queue.
   *
   * @throws CprgError `already_exists` for an id that was used, `invalid_argument` naming the field,
   *   `resource_exhausted` QUEUE_FULL, `unavailable` while it stops
   */
  submit(input: Json, options?: SubmitOptions): Promise<TaskView>;
  /** @throws CprgError `not_found`, also for a task of another tenant than the one that is given */
  task(id: string, tenant?: string): Promise<TaskView>;
  /** @throws CprgError `invalid_argument` for a cursor that is none */
  tasks(query: TaskListQuery): Promise<TaskViews>;
  /** The task once it has ended. @throws CprgError `not_found`; the signal's reason */
  waitTask(id: string, options?: { readonly signal?: AbortSignal }): Promise<TaskView>;
  /**
   * Cancels a task; resolves when nothing of it runs any more, or its worker is lost.
   *
   * @throws CprgError `not_found`; `failed_precondition` TASK_STATUS when it had ended
   */
  cancelTask(id: string): Promise<TaskView>;
  /** Fails a task with a message; as {@link cancelTask}. */
  failTask(id: string, message: string): Promise<TaskView>;
  /** Every worker that is connected, waited for, or was lost a short while ago. */
  workers(): readonly WorkerView[];
  /**
   * Ends the claims of a worker, fails their tasks, and lets it go on.
   *
   * @throws CprgError `not_found`
   */
  releaseWorker(id: string): Promise<WorkerView>;
  /** Ends a worker's stream and claims, and forgets its id. @throws CprgError `not_found` */
  removeWorker(id: string): Promise<void>;
  /** Tells a worker to finish its claims and take no other. @throws CprgError `not_found` */
  drainWorker(id: string): Promise<WorkerView>;
  /** @throws CprgError `invalid_argument` naming the field */
  mintWorkerToken(request: WorkerTokenRequest): Promise<MintedWorkerToken>;
  /** Newest first; at most `WORKER_TOKENS_MAX`. */
  workerTokens(): Promise<readonly WorkerTokenView[]>;
  /**
   * Ends a token; streams that came with it are cut within a second. Idempotent.
   *
   * @throws CprgError `not_found`
   */
  revokeWorkerToken(id: string): Promise<WorkerTokenView>;
}
