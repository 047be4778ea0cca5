/** Tasks in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import type { Reason } from "../core/reasons.ts";
import {
  hasTaskEnded,
  type Json,
  reduceTask,
  type Task,
  type TaskChange,
  type TaskStatus,
} from "../core/task.ts";
import { type TaskPage, type TaskQuery, UNFINISHED_MAX, type UnfinishedQuery } from "./contract.ts";
import type { SqliteEvents } from "./sqlite-events.ts";
import { pageOfRows } from "./sqlite-page.ts";
import { checkTaskChange, checkTaskInsert, taskDraft, taskNotFound } from "./task-rules.ts";

/** Columns of `tasks` but the environment; structures are JSON. */
type TaskRow = {
  id: string;
  tenant: string;
  status: string;
  reason: string | null;
  runner: string;
  input: string;
  labels: string;
  repo_url: string | null;
  ref: string | null;
  attempts: number;
  epoch: number;
  worker: string | null;
  result: string;
  error: string | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
};

const COLUMNS = `id, tenant, status, reason, runner, input, labels, repo_url, ref, attempts, epoch,
  worker, result, error, created_at, started_at, finished_at`;

/** The task store beneath the Worker. */
export class SqliteTasks {
  readonly #db: Database;
  readonly #events: SqliteEvents;
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database, events: SqliteEvents) {
    this.#db = db;
    this.#events = events;
    this.#statements = prepare(db);
  }

  insert(task: Task, sealedEnv: Uint8Array | null): null {
    checkTaskInsert(task, { existing: this.get(task.id), sealedEnv });
    const row = toRow(task);
    this.#statements.insert.run({ ...row, sealed_env: sealedEnv });
    this.#events.append(`task:${task.id}`, [taskDraft(task, task.createdAt)]);
    this.#events.charge(`task:${task.id}`, task.tenant, Buffer.byteLength(row.input));
    return null;
  }

  get(id: string): Task | null {
    const row = this.#statements.get.get({ id });
    return row === null ? null : toTask(row);
  }

  sealedEnv(id: string): Uint8Array | null {
    const env = this.#statements.env.get({ id })?.sealed_env ?? null;
    return env === null ? null : new Uint8Array(env);
  }

  list({ tenant, status, ...query }: TaskQuery): TaskPage {
    const { items, nextCursor } = pageOfRows(
      this.#db,
      {
        ...query,
        select: `SELECT ${COLUMNS} FROM tasks`,
        where: ["tenant = $tenant", ...(status === undefined ? [] : ["status = $status"])],
        values: { tenant, ...(status === undefined ? {} : { status }) },
      },
      toTask,
    );
    return { tasks: items, nextCursor };
  }

  change(id: string, change: TaskChange): Task {
    const before = this.get(id);
    if (before === null) throw taskNotFound(id);
    checkTaskChange(change);
    const task = reduceTask(before, change);
    const { status, reason, attempts, epoch, worker, result, error, ...row } = toRow(task);
    const { started_at, finished_at } = row;
    const progress = { status, reason, attempts, epoch, worker, result, error };
    this.#statements.update.run({ id, ...progress, started_at, finished_at });
    if (status !== "queued" && status !== "claiming") this.#statements.erase.run({ id });
    const timed = taskDraft(task, change.at);
    if (hasTaskEnded(task)) {
      this.#events.finish(`task:${id}`, timed, task.tenant);
      this.#events.charge(`task:${id}`, task.tenant, Buffer.byteLength(result));
    } else this.#events.append(`task:${id}`, [timed]);
    return task;
  }

  unfinished({ status, limit, after }: UnfinishedQuery): readonly Task[] {
    const wanted = {
      status,
      limit: Math.min(limit, UNFINISHED_MAX),
      createdAt: after?.createdAt ?? -1,
      id: after?.id ?? "",
    };
    return this.#statements.unfinished.all(wanted).map(toTask);
  }
}

type Progress = Pick<
  TaskRow,
  | "id"
  | "status"
  | "reason"
  | "attempts"
  | "epoch"
  | "worker"
  | "result"
  | "error"
  | "started_at"
  | "finished_at"
>;

function prepare(db: Database) {
  return {
    insert: db.prepare<null, TaskRow & { sealed_env: Uint8Array | null }>(
      `INSERT INTO tasks (${COLUMNS}, sealed_env)
       VALUES ($id, $tenant, $status, $reason, $runner, $input, $labels, $repo_url, $ref, $attempts,
         $epoch, $worker, $result, $error, $created_at, $started_at, $finished_at, $sealed_env)`,
    ),
    get: db.prepare<TaskRow, { id: string }>(`SELECT ${COLUMNS} FROM tasks WHERE id = $id`),
    env: db.prepare<{ sealed_env: Uint8Array | null }, { id: string }>(
      "SELECT sealed_env FROM tasks WHERE id = $id",
    ),
    update: db.prepare<null, Progress>(
      `UPDATE tasks SET status = $status, reason = $reason, attempts = $attempts, epoch = $epoch,
         worker = $worker, result = $result, error = $error, started_at = $started_at,
         finished_at = $finished_at WHERE id = $id`,
    ),
    erase: db.prepare<null, { id: string }>(
      "UPDATE tasks SET sealed_env = NULL WHERE id = $id AND sealed_env IS NOT NULL",
    ),
    unfinished: db.prepare<
      TaskRow,
      { status: string; limit: number; createdAt: number; id: string }
    >(
      `SELECT ${COLUMNS} FROM tasks WHERE status = $status AND finished_at IS NULL
         AND (created_at, id) > ($createdAt, $id) ORDER BY created_at, id LIMIT $limit`,
    ),
  };
}

function toRow(task: Task): TaskRow {
  return {
    id: task.id,
    tenant: task.tenant,
    status: task.status,
    reason: task.reason,
    runner: task.runner,
    input: JSON.stringify(task.input),
    labels: JSON.stringify(task.labels),
    repo_url: task.repoUrl,
    ref: task.ref,
    attempts: task.attempts,
    epoch: task.epoch,
    worker: task.workerId,
    result: JSON.stringify(task.result),
    error: task.error,
    created_at: task.createdAt,
    started_at: task.startedAt,
    finished_at: task.finishedAt,
  };
}

function toTask(row: TaskRow): Task {
  return {
    id: row.id,
    tenant: row.tenant,
    status: row.status as TaskStatus,
    reason: row.reason as Reason | null,
    runner: row.runner,
    input: JSON.parse(row.input) as Json,
    labels: JSON.parse(row.labels) as Record<string, string>,
    repoUrl: row.repo_url,
    ref: row.ref,
    attempts: row.attempts,
    epoch: row.epoch,
    workerId: row.worker,
    result: JSON.parse(row.result) as Json,
    error: row.error,
    createdAt: row.created_at,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
  };
}
