/**
 * Gives waiting tasks to workers: looks whenever something has changed, never on a clock. A task is
 * either in the queue or in one run, and moves between the two in one step, so that it has one claim.
 */

import { CprgError } from "../core/errors.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import { TenantTurns } from "../tenancy/tenant-turns.ts";
import type { WaitingFor } from "./contract.ts";
import { LeaseRequests, type LeaseSlot } from "./lease-requests.ts";
import { nextAssignment, type Places, type SchedulerState, type Waiting } from "./scheduler.ts";
import { type QueuedTask, TaskQueue } from "./task-queue.ts";
import { TaskRun, type TaskRunParts } from "./task-run.ts";
import { waitingFor } from "./task-view.ts";
import type { WorkerRegistry } from "./worker-registry.ts";

/** Claims that one tenant may have at once. */
export const TENANT_CLAIMS_DEFAULT = 100;
/** After what the store did not take. */
const STORE_RETRY_MS = 1000;

/** What a dispatcher works with. */
export interface DispatcherOptions {
  readonly registry: WorkerRegistry;
  readonly run: TaskRunParts;
  readonly tenantLimit: number;
}

/** Queue and runs; and leases, which wait among the tasks and count with their claims. */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #queue = new TaskQueue();
  readonly #runs = new Map<string, TaskRun>();
  readonly #leases = new LeaseRequests(() => this.wake());
  readonly #turns = new TenantTurns();
  readonly #retries = new Set<Timer>();
  #isLookScheduled = false;
  #isStopping = false;

  constructor(options: DispatcherOptions) {
    this.#options = options;
  }

  /** Tasks that wait. */
  get queue(): Pick<TaskQueue, "size" | "countOf"> {
    return this.#queue;
  }

  /** Tasks that are claimed or run. */
  get runs(): readonly TaskRun[] {
    return [...this.#runs.values()];
  }

  run(id: string): TaskRun | undefined {
    return this.#runs.get(id);
  }

  /** Puts a task into the queue. */
  add(task: QueuedTask): void {
    this.#queue.add(task);
    this.wake();
  }

  /** Takes a task out of the queue, so that it is not claimed; undefined when it is not in there. */
  take(id: string): QueuedTask | undefined {
    return this.#queue.take(id);
  }

  /**
   * Keeps a slot of a worker for somebody else than a task, as soon as it is their turn.
   *
   * @throws CprgError `unavailable` SHUTDOWN; the signal's reason
   */
  async lease(request: Waiting, signal?: AbortSignal): Promise<LeaseSlot> {
    if (this.#isStopping) throw shutdown();
    const slot = this.#leases.ask(request, signal);
    this.wake();
    return await slot;
  }

  /** Why a lease would wait, as things stand now; null: it need not. */
  waitingLease(request: Waiting): WaitingFor | null {
    return waitingFor(request, this.#places());
  }

  /** Something has changed; looks soon, once for all that changed meanwhile. */
  wake(): void {
    if (this.#isLookScheduled || this.#isStopping) return;
    this.#isLookScheduled = true;
    queueMicrotask(() => {
      this.#isLookScheduled = false;
      this.#look();
    });
  }

  /** Why tasks wait, one after another, as things stand now; null: it need not. */
  waiting(): (task: QueuedTask) => WaitingFor | null {
    const state = this.#places();
    return (task) => {
      if (this.#options.run.runner(task.runner) === undefined) {
        return { code: "no_runner", detail: `no runner "${task.runner}" is set` };
      }
      return waitingFor(task, state);
    };
  }

  /**
   * Claims nothing more; what is being claimed goes back into the queue, what runs has a grace and is
   * stopped then. Resolves when nothing runs. Calling again can only shorten the grace.
   */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    for (const retry of this.#retries) retry.clear();
    const why = shutdown();
    this.#leases.refuse(why);
    for (const run of this.runs) if (!run.isRunning) run.stop({ type: "requeue", why });
    const timer = startTimer(graceMs, () => {
      for (const run of this.runs) run.stop({ type: "requeue", why });
    });
    await Promise.all(this.runs.map(({ ended }) => ended));
    timer.clear();
  }

  #look(): void {
    while (!this.#isStopping) {
      const found = nextAssignment(this.#state());
      if (found === null) return;
      this.#turns.served(found.tenant);
      const slot = this.#options.registry.reserve(found.workerId);
      const queued = this.#queue.take(found.taskId);
      if (queued === undefined) this.#leases.give(found.taskId, slot);
      else this.#follow(new TaskRun(queued, slot, this.#options.run));
    }
  }

  #follow(run: TaskRun): void {
    const { queued, workerId } = run;
    this.#runs.set(queued.id, run);
    void run.ended.then((end) => {
      this.#runs.delete(queued.id);
      if (end.type === "unchanged") {
        this.#addLater(queued);
      } else if (end.type === "queued") {
        const { avoids = [] } = queued;
        this.#queue.add({ ...queued, avoids: end.isFailure ? [...avoids, workerId] : avoids });
      }
      this.wake();
    });
  }

  #addLater(task: QueuedTask): void {
    const retry = startTimer(STORE_RETRY_MS, () => {
      this.#retries.delete(retry);
      this.add(task);
    });
    this.#retries.add(retry);
    if (this.#isStopping) retry.clear();
  }

  #state(): SchedulerState {
    const { run } = this.#options;
    const tasks = this.#queue.tasks.filter(({ runner }) => run.runner(runner) !== undefined);
    return { ...this.#places(), waiting: this.#leases.among(tasks) };
  }

  /** All but who waits. */
  #places(): Places {
    const { registry, tenantLimit } = this.#options;
    const holders = [...this.runs.map(({ queued }) => queued.tenant), ...this.#leases.holders];
    return {
      workers: registry.candidates(),
      shares: this.#turns.shares(holders),
      tenantLimit,
    };
  }
}

function shutdown(): CprgError {
  return new CprgError("unavailable", "the control plane stops", { reason: "SHUTDOWN" });
}
