/** How many tasks may wait: looked at before one is kept, also while others are being kept. */

import { CprgError } from "../core/errors.ts";
import { TASK_QUEUE_MAX, TASK_QUEUE_TENANT_MAX, type TaskQueue } from "./task-queue.ts";

/** When a client may try again after a full queue. */
const QUEUE_FULL_RETRY_SECONDS = 5;

/** Bounds of a queue. */
export interface QueueBounds {
  /** Of all tenants together; default: {@link TASK_QUEUE_MAX}. */
  readonly queueMax?: number;
  /** Of one tenant; default: {@link TASK_QUEUE_TENANT_MAX}. */
  readonly queueTenantMax?: number;
}

/** The room of one queue. */
export class QueueRoom {
  readonly #queue: Pick<TaskQueue, "size" | "countOf">;
  readonly #bounds: QueueBounds;
  /** Tenants of submits between the look and the commit. */
  readonly #inserting: string[] = [];

  constructor(queue: Pick<TaskQueue, "size" | "countOf">, bounds: QueueBounds) {
    this.#queue = queue;
    this.#bounds = bounds;
  }

  /**
   * Puts a task of a tenant into the queue, if there is room for it.
   *
   * @throws CprgError `resource_exhausted` QUEUE_FULL; what `insert` throws
   */
  async within(tenant: string, insert: () => Promise<void>): Promise<void> {
    this.#check(tenant);
    this.#inserting.push(tenant);
    try {
      await insert();
    } finally {
      this.#inserting.splice(this.#inserting.indexOf(tenant), 1);
    }
  }

  #check(tenant: string): void {
    const { queueMax = TASK_QUEUE_MAX, queueTenantMax = TASK_QUEUE_TENANT_MAX } = this.#bounds;
    const own = this.#inserting.filter((each) => each === tenant).length;
    if (this.#queue.size + this.#inserting.length >= queueMax) throw full(`${queueMax} tasks wait`);
    if (this.#queue.countOf(tenant) + own < queueTenantMax) return;
    throw full(`${queueTenantMax} tasks of the tenant wait`);
  }
}

function full(state: string): CprgError {
  return new CprgError("resource_exhausted", `Cannot take task: ${state}`, {
    reason: "QUEUE_FULL",
    retryable: true,
    retryAfterSeconds: QUEUE_FULL_RETRY_SECONDS,
  });
}
