/** Tasks, workers and their tokens as `/v1` and `--json` show them. */

import type {
  MintedWorkerToken,
  TaskView,
  WorkerTokenView,
  WorkerView,
} from "../control-plane/contract.ts";
import { timestamp } from "../core/clock.ts";

/** A task in a list: without what may be large. */
export type TaskEntryView = ReturnType<typeof taskEntryView>;
/** A task. */
export type TaskAnswerView = ReturnType<typeof taskAnswerView>;
/** A worker. */
export type WorkerAnswerView = ReturnType<typeof workerAnswerView>;
/** A token for workers, without the token itself. */
export type TokenAnswerView = ReturnType<typeof tokenAnswerView>;
/** A token for workers that was just made. */
export type MintedAnswerView = ReturnType<typeof mintedAnswerView>;

/** A task in a list: without its input and result, which may be large. */
export function taskEntryView(task: TaskView) {
  return {
    task_id: task.id,
    tenant: task.tenant,
    status: task.status,
    reason: task.reason,
    ...(task.waiting === undefined
      ? {}
      : { waiting: { code: task.waiting.code, detail: task.waiting.detail } }),
    runner: task.runner,
    labels: task.labels,
    repo_url: task.repoUrl,
    ref: task.ref,
    attempts: task.attempts,
    epoch: task.epoch,
    worker_id: task.workerId,
    error: task.error,
    created_at: timestamp(task.createdAt),
    started_at: timeOrNull(task.startedAt),
    finished_at: timeOrNull(task.finishedAt),
  };
}

/** A task. */
export function taskAnswerView(task: TaskView) {
  return { ...taskEntryView(task), input: task.input, result: task.result };
}

/**
 * A worker.
 *
 * @param isFull with its claims and tenants, which may be others' than the reader's
 */
export function workerAnswerView(worker: WorkerView, { isFull }: { readonly isFull: boolean }) {
  const claims = worker.claims.map(({ taskId, epoch }) => ({ task_id: taskId, epoch }));
  return {
    worker_id: worker.id,
    name: worker.name,
    labels: worker.labels,
    state: worker.status,
    version: worker.version,
    slots: worker.slots,
    busy_slots: worker.claims.length,
    failures: worker.failures,
    connected_at: timeOrNull(worker.connectedAt),
    last_seen_at: timestamp(worker.lastSeenAt),
    ...(isFull ? { claims, tenants: worker.tenants } : {}),
  };
}

/** A token for workers, without the token itself. */
export function tokenAnswerView(token: WorkerTokenView) {
  return {
    token_id: token.id,
    name: token.name,
    worker_id: token.workerId,
    labels: token.labels,
    tenants: token.tenants,
    created_at: timestamp(token.createdAt),
    expires_at: timestamp(token.expiresAt),
    revoked_at: timeOrNull(token.revokedAt),
  };
}

/** A token for workers that was just made, with the token itself. */
export function mintedAnswerView({ token, view }: MintedWorkerToken) {
  return { ...tokenAnswerView(view), token };
}

function timeOrNull(at: number | null): string | null {
  return at === null ? null : timestamp(at);
}
