/** Tasks that wait for a worker, oldest first. */

import type { Task } from "../core/task.ts";
import type { Waiting } from "./scheduler.ts";

/** Tasks that may wait, of all tenants together, and of one. */
export const TASK_QUEUE_MAX = 10_000;
export const TASK_QUEUE_TENANT_MAX = 5000;

/** A task that waits: as little of it as placing needs. */
export interface QueuedTask extends Waiting {
  readonly runner: string;
}

/** What placing needs of a task. */
export function queuedTask(
  { id, tenant, labels, createdAt, runner }: Task,
  avoids: readonly string[] = [],
): QueuedTask {
  return { id, tenant, labels, createdAt, runner, avoids };
}

/** The queue. */
export class TaskQueue {
  readonly #tasks: QueuedTask[] = [];
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#tasks.length;
  }

  /** Oldest first. */
  get tasks(): readonly QueuedTask[] {
    return this.#tasks;
  }

  /** How many tasks of a tenant wait. */
  countOf(tenant: string): number {
    return this.#counts.get(tenant) ?? 0;
  }

  /** Puts a task in its place by age: one that comes back is where it was. */
  add(task: QueuedTask): void {
    let at = this.#tasks.length;
    while (at > 0 && isOlder(task, this.#tasks[at - 1])) at -= 1;
    this.#tasks.splice(at, 0, task);
    this.#count(task.tenant, 1);
  }

  /** Takes a task out; undefined when it does not wait. */
  take(id: string): QueuedTask | undefined {
    const at = this.#tasks.findIndex((task) => task.id === id);
    const [task] = at < 0 ? [] : this.#tasks.splice(at, 1);
    if (task !== undefined) this.#count(task.tenant, -1);
    return task;
  }

  #count(tenant: string, change: 1 | -1): void {
    const count = this.countOf(tenant) + change;
    if (count > 0) this.#counts.set(tenant, count);
    else this.#counts.delete(tenant);
  }
}

function isOlder(a: QueuedTask, b: QueuedTask | undefined): boolean {
  if (b === undefined) return false;
  return a.createdAt === b.createdAt ? a.id < b.id : a.createdAt < b.createdAt;
}
