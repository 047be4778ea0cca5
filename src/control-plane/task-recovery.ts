/**
 * What an earlier control plane left: done before anything is served. Queued tasks wait again, each
 * once; what was claimed or ran ends as `interrupted` and is never done again, for it may have
 * changed files or called others.
 */

import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Task, TaskEnd, TaskEndStatus, TaskStatus } from "../core/task.ts";
import { type TaskStore, UNFINISHED_MAX } from "../store/contract.ts";

/** What recovery works with. */
export interface RecoveryOptions {
  readonly tasks: TaskStore;
  readonly clock: Clock;
  /** Whether tasks that waited wait again; else they end as `interrupted`, too. */
  readonly keepQueued: boolean;
  /** One waits again. */
  onQueued(task: Task): void;
}

/** What was found. */
export interface RecoveredTasks {
  readonly queued: number;
  readonly interrupted: number;
}

const INTERRUPTED: TaskEnd = {
  status: "failed",
  reason: "interrupted",
  error: "the control plane ended before the task did",
};

/** Recovers. @throws CprgError of the store */
export async function recoverTasks(options: RecoveryOptions): Promise<RecoveredTasks> {
  let interrupted = 0;
  for (const status of ["running", "claiming"] as const) {
    interrupted += await endAll(options, status);
  }
  if (!options.keepQueued) {
    interrupted += await endAll(options, "queued");
    return { queued: 0, interrupted };
  }
  let queued = 0;
  for await (const task of unfinished(options.tasks, "queued")) {
    options.onQueued(task);
    queued += 1;
  }
  return { queued, interrupted };
}

async function endAll({ tasks, clock }: RecoveryOptions, status: Unfinished): Promise<number> {
  let count = 0;
  for await (const { id } of unfinished(tasks, status)) {
    try {
      await tasks.change(id, { type: "finish", at: clock.now(), epoch: null, end: INTERRUPTED });
      count += 1;
    } catch (error) {
      // It has ended by itself: nothing is left to do.
      if (CprgError.from(error).reason !== "TASK_STATUS") throw error;
    }
  }
  return count;
}

type Unfinished = Exclude<TaskStatus, TaskEndStatus>;

async function* unfinished(tasks: TaskStore, status: Unfinished): AsyncGenerator<Task> {
  let after: Task | undefined;
  for (;;) {
    const page = await tasks.unfinished({
      status,
      limit: UNFINISHED_MAX,
      ...(after === undefined ? {} : { after: { createdAt: after.createdAt, id: after.id } }),
    });
    yield* page;
    after = page.at(-1);
    if (after === undefined) return;
  }
}
