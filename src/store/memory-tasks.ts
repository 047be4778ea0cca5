/** Tasks in this process: the twin of sqlite-tasks.ts. */

import type { Subject } from "../core/event.ts";
import { hasTaskEnded, reduceTask, type Task, type TaskChange } from "../core/task.ts";
import { type TaskPage, type TaskQuery, UNFINISHED_MAX, type UnfinishedQuery } from "./contract.ts";
import { byAge } from "./job-rules.ts";
import type { MemoryLogs } from "./memory-logs.ts";
import { pageOf } from "./memory-page.ts";
import { checkTaskChange, checkTaskInsert, taskDraft, taskNotFound } from "./task-rules.ts";

/** Tasks by id. */
export class MemoryTasks {
  readonly #logs: MemoryLogs;
  readonly #tasks = new Map<string, { task: Task; env: Uint8Array | null }>();

  constructor(logs: MemoryLogs) {
    this.#logs = logs;
  }

  has(subject: Subject): boolean {
    return subject.startsWith("task:") && this.#tasks.has(subject.slice(5));
  }

  insert(task: Task, sealedEnv: Uint8Array | null): void {
    checkTaskInsert(task, { existing: this.get(task.id), sealedEnv });
    this.#logs.append(`task:${task.id}`, [taskDraft(task, task.createdAt)]);
    this.#tasks.set(task.id, { task: structuredClone(task), env: sealedEnv?.slice() ?? null });
  }

  get(id: string): Task | null {
    return this.#tasks.get(id)?.task ?? null;
  }

  sealedEnv(id: string): Uint8Array | null {
    return this.#tasks.get(id)?.env?.slice() ?? null;
  }

  list(query: TaskQuery): TaskPage {
    const found = this.#all()
      .filter(({ tenant }) => tenant === query.tenant)
      .filter(({ status }) => query.status === undefined || status === query.status);
    const { items, nextCursor } = pageOf(found, query);
    return { tasks: items, nextCursor };
  }

  change(id: string, change: TaskChange): Task {
    const kept = this.#tasks.get(id);
    if (kept === undefined) throw taskNotFound(id);
    checkTaskChange(change);
    const task = reduceTask(kept.task, structuredClone(change));
    const { at, draft } = taskDraft(task, change.at);
    if (hasTaskEnded(task)) this.#logs.finish(`task:${id}`, { at, draft }, task.tenant);
    else this.#logs.append(`task:${id}`, [{ at, draft }]);
    const isDelivered = task.status !== "queued" && task.status !== "claiming";
    this.#tasks.set(id, { task, env: isDelivered ? null : kept.env });
    return task;
  }

  unfinished({ status, limit, after }: UnfinishedQuery): readonly Task[] {
    return this.#all()
      .filter((task) => task.status === status)
      .filter((task) => after === undefined || byAge(task, after) > 0)
      .sort(byAge)
      .slice(0, Math.min(limit, UNFINISHED_MAX));
  }

  storedBytes(tenant: string): number {
    return this.#all()
      .filter((task) => task.tenant === tenant)
      .reduce((sum, { id, input, result, finishedAt }) => {
        const kept = jsonBytes(input) + (finishedAt === null ? 0 : jsonBytes(result));
        return sum + this.#logs.bytes(`task:${id}`) + kept;
      }, 0);
  }

  /** How to remove each that ended before a time: returns how many lines its log had. */
  ended(before: number): readonly (() => number)[] {
    const ended = this.#all().filter(({ finishedAt }) => (finishedAt ?? before) < before);
    return ended.map(({ id }) => () => {
      this.#tasks.delete(id);
      return this.#logs.remove(`task:${id}`);
    });
  }

  clear(): void {
    this.#tasks.clear();
  }

  #all(): Task[] {
    return [...this.#tasks.values()].map(({ task }) => task);
  }
}

function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}
