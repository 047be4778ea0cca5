/**
 * The control plane: takes tasks, lets workers in, gives one to the other, and keeps what came of it.
 * Runs on Node and Bun; without a store everything lives and dies with the process.
 */

import { type Listener, listen } from "../bridge/listener.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import { type Log, silentLog } from "../core/log.ts";
import { hasTaskEnded, type Json, type Task, type TaskEnd } from "../core/task.ts";
import type { WorkerPool } from "../provider/placement.ts";
import { Feed } from "../record/feed.ts";
import { checkStoredBytes } from "../record/stored-bytes.ts";
import type { EventLine } from "../store/contract.ts";
import { ephemeralControlKeys, openControlKeys } from "../store/control-keys.ts";
import { memoryStore } from "../store/memory-store.ts";
import { taskNotFound } from "../store/task-rules.ts";
import type {
  BridgeAddress,
  MintedWorkerToken,
  Runner,
  SubmitOptions,
  TaskControl,
  TaskListQuery,
  TaskView,
  TaskViews,
  WorkerTokenRequest,
  WorkerTokenView,
  WorkerView,
} from "./contract.ts";
import {
  BRIDGE_HOST_DEFAULT,
  BRIDGE_PORT_DEFAULT,
  type ControlPlaneCreateOptions,
  type ControlPlaneOptions,
  type ControlPlaneParts,
  MEMORY_KEPT_MS,
  memoryParts,
  type ServeOptions,
  STOP_GRACE_MS_DEFAULT,
} from "./control-plane-options.ts";
import { Dispatcher, TENANT_CLAIMS_DEFAULT } from "./dispatcher.ts";
import { EnvSeal } from "./env-seal.ts";
import { QueueRoom } from "./queue-room.ts";
import { submitted } from "./submit-rules.ts";
import { queuedTask } from "./task-queue.ts";
import { type RecoveredTasks, recoverTasks } from "./task-recovery.ts";
import { taskView } from "./task-view.ts";
import { TaskWaits } from "./task-waits.ts";
import { TokenSigner } from "./token-signer.ts";
import { workerAdmission } from "./worker-admission.ts";
import { ClaimedWorkers } from "./worker-pool.ts";
import { WorkerRegistry } from "./worker-registry.ts";
import { WorkerTokens } from "./worker-tokens.ts";

/** A control plane. */
export class ControlPlane implements TaskControl {
  readonly #options: ControlPlaneOptions;
  readonly #parts: ControlPlaneParts;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #seal: EnvSeal;
  readonly #runners = new Map<string, Runner>();
  readonly #registry: WorkerRegistry;
  readonly #tokens: WorkerTokens;
  readonly #dispatcher: Dispatcher;
  readonly #pool: ClaimedWorkers;
  readonly #waits = new TaskWaits();
  readonly #stopping = new AbortController();
  readonly #room: QueueRoom;
  #staleRefused = 0;
  #prunedAt = 0;
  #listening: Promise<Listener> | null = null;
  #stopped: Promise<void> | null = null;

  /** One in memory. */
  constructor(options: ControlPlaneOptions = {}, parts: ControlPlaneParts = memoryParts()) {
    this.#options = options;
    this.#parts = parts;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? silentLog;
    this.#seal = new EnvSeal(parts.keys.env);
    this.#tokens = new WorkerTokens({
      store: parts.store.workerTokens,
      signer: new TokenSigner(parts.keys.token),
      clock: this.#clock,
      onRevoked: (id) => this.#registry.cut(id),
    });
    this.#registry = new WorkerRegistry({
      authenticate: workerAdmission({
        tokens: this.#tokens,
        shared: options.token,
        allowShared: options.allowShared ?? false,
      }),
      isRevoked: (id) => this.#tokens.isRevoked(id),
      version: options.version ?? "cprg",
      log: this.#log,
      clock: this.#clock,
      onChange: () => this.#dispatcher.wake(),
      ...(options.liveness === undefined ? {} : { liveness: options.liveness }),
      ...(options.quarantineMs === undefined ? {} : { quarantineMs: options.quarantineMs }),
    });
    this.#dispatcher = this.#makeDispatcher();
    this.#pool = new ClaimedWorkers({ dispatcher: this.#dispatcher, registry: this.#registry });
    this.#room = new QueueRoom(this.#dispatcher.queue, options);
  }

  /**
   * One with a store: what an earlier one left is recovered before this resolves.
   *
   * @throws CprgError of the store and of the keys; the store is closed then
   */
  static async create(options: ControlPlaneCreateOptions = {}): Promise<ControlPlane> {
    const { dataDirectory, ownsStore = true, recoverQueued = true } = options;
    const keys =
      dataDirectory === undefined ? ephemeralControlKeys() : await openControlKeys(dataDirectory);
    const own = memoryStore();
    const store = options.store ?? (await options.storeFactory?.()) ?? own;
    const feed = options.feed ?? new Feed(store.events);
    try {
      const prune = store === own ? { prune: own.prune } : {};
      const plane = new ControlPlane(options, { store, ownsStore, keys, feed, ...prune });
      await plane.#recover(recoverQueued);
      return plane;
    } catch (error) {
      if (ownsStore) await store.close();
      throw error;
    }
  }

  /** Workers, for those who claim them for something else than tasks. */
  get registry(): WorkerRegistry {
    return this.#registry;
  }

  /** Workers for jobs and sandboxes, which wait in turn with tasks. */
  get pool(): WorkerPool {
    return this.#pool;
  }

  /** What spoke of an old claim, of another's, or of a task that had ended, and was refused. */
  get staleEpochRefused(): number {
    return this.#staleRefused + this.#registry.staleRefused;
  }

  /** How many tasks wait, and how many are claimed or run. */
  get counts(): { readonly queued: number; readonly running: number } {
    return { queued: this.#dispatcher.queue.size, running: this.#dispatcher.runs.length };
  }

  /**
   * Sets the runner of a name, or the only one; in place of one that was set before.
   *
   * @returns this, so that several can be set in a row
   */
  setRunner(runner: Runner): this;
  setRunner(name: string, runner: Runner): this;
  setRunner(...given: [Runner] | [string, Runner]): this {
    const [name, runner] = given.length === 1 ? [RUNNER_NAME_DEFAULT, given[0]] : given;
    this.#runners.set(name, runner);
    this.#dispatcher.wake();
    return this;
  }

  /**
   * Listens for workers.
   *
   * @throws CprgError `unavailable` when the address cannot be used; `failed_precondition` when it
   *   listens already, or stops
   */
  async serve({
    host = BRIDGE_HOST_DEFAULT,
    port = BRIDGE_PORT_DEFAULT,
    tls,
  }: ServeOptions = {}): Promise<BridgeAddress> {
    if (this.#stopped !== null) throw stopping();
    if (this.#listening !== null) {
      throw new CprgError("failed_precondition", "Cannot listen for workers: it does already");
    }
    const listening = listen({
      host,
      port,
      ...(tls === undefined ? {} : { tls }),
      admission: this.#registry,
      onBug: (error) => this.#log.error("a worker could not be let in", { error }),
    });
    this.#listening = listening;
    try {
      const listener = await listening;
      return Object.freeze({ host, port: listener.port });
    } catch (error) {
      this.#listening = null;
      throw error;
    }
  }

  /**
   * Takes no more tasks, gives those that run a grace, then ends them, lets workers go and closes the
   * store. What waits stays queued. Calling again can only shorten the grace.
   *
   * @param options `leases`: resolves when nobody uses the pool any more; workers are kept until then
   */
  stop({
    graceMs,
    leases = Promise.resolve(),
  }: {
    readonly graceMs?: number;
    readonly leases?: Promise<unknown>;
  } = {}): Promise<void> {
    if (this.#stopped !== null) {
      if (graceMs !== undefined) void this.#dispatcher.stop(graceMs);
      return this.#stopped;
    }
    const wanted = graceMs ?? this.#options.stopGraceMs ?? STOP_GRACE_MS_DEFAULT;
    this.#stopped = this.#stop(wanted, leases);
    return this.#stopped;
  }

  async submit(input: Json, options: SubmitOptions = {}): Promise<TaskView> {
    if (this.#stopped !== null) throw stopping();
    const at = this.#clock.now();
    const { task, env } = submitted(input, options, { runners: [...this.#runners.keys()], at });
    const { tenantBytesMax: bytesMax } = this.#options;
    const { store } = this.#parts;
    await this.#room.within(task.tenant, async () => {
      if (bytesMax !== undefined) {
        await checkStoredBytes(store, task.tenant, { what: "take task", bytesMax });
      }
      await store.tasks.insert(task, this.#seal.seal(task.id, env));
      this.#dispatcher.add(queuedTask(task));
    });
    this.#parts.feed.advanced(`task:${task.id}`);
    this.#forgetOld(at);
    return this.#view(task);
  }

  async task(id: string, tenant?: string): Promise<TaskView> {
    return this.#view(await this.#get(id, tenant));
  }

  async tasks(query: TaskListQuery): Promise<TaskViews> {
    const { tasks, nextCursor } = await this.#parts.store.tasks.list(query);
    const waiting = this.#dispatcher.waiting();
    const views = tasks.map((task) =>
      taskView(task, task.status === "queued" ? waiting(queuedTask(task)) : null),
    );
    return { tasks: views, nextCursor };
  }

  async waitTask(
    id: string,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<TaskView> {
    const look = async () => {
      const task = await this.#get(id);
      if (hasTaskEnded(task)) return taskView(task);
      if (this.#stopping.signal.aborted) throw stopping();
      return undefined;
    };
    return await this.#waits.until(id, look, signal);
  }

  async cancelTask(id: string): Promise<TaskView> {
    return await this.#end(id, {
      end: { status: "cancelled", reason: "user" },
      why: new CprgError("canceled", "the task was cancelled", { reason: "CANCELLED" }),
    });
  }

  async failTask(id: string, message: string): Promise<TaskView> {
    const error = message.slice(0, MESSAGE_CHARS_MAX).toWellFormed();
    return await this.#end(id, {
      end: { status: "failed", reason: "user", error },
      why: new CprgError("canceled", "the task was failed", { reason: "FAILED" }),
    });
  }

  /**
   * Lines of a task's log from `fromSeq` on, as they are committed, until its end.
   *
   * @throws CprgError `not_found`
   */
  async *events(
    id: string,
    {
      fromSeq = 1,
      signal = this.#stopping.signal,
    }: { fromSeq?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<EventLine, void, undefined> {
    await this.#get(id);
    const stop = this.#stopping.signal;
    const until = signal === undefined ? stop : AbortSignal.any([signal, stop]);
    const pages = this.#parts.feed.subscribe(`task:${id}`, { fromSeq, signal: until });
    for await (const page of pages) yield* page;
  }

  workers(): readonly WorkerView[] {
    return this.#registry.views();
  }

  async releaseWorker(id: string): Promise<WorkerView> {
    const { id: workerId } = this.#registry.view(id);
    const error = "its worker was released";
    const end: TaskEnd = { status: "failed", reason: "interrupted", error };
    const why = new CprgError("aborted", error, { reason: "WORKER_RELEASED" });
    const runs = this.#dispatcher.runs.filter((run) => run.workerId === workerId);
    for (const run of runs) run.stop({ type: "end", end, why });
    await Promise.all([this.#registry.release(workerId), ...runs.map(({ ended }) => ended)]);
    return this.#registry.view(workerId);
  }

  async removeWorker(id: string): Promise<void> {
    const runs = this.#dispatcher.runs.filter((run) => run.workerId === id);
    this.#registry.remove(id);
    await Promise.all(runs.map(({ ended }) => ended));
  }

  async drainWorker(id: string): Promise<WorkerView> {
    await this.#registry.drain(id);
    return this.#registry.view(id);
  }

  async mintWorkerToken(request: WorkerTokenRequest): Promise<MintedWorkerToken> {
    return await this.#tokens.mint(request);
  }

  async workerTokens(): Promise<readonly WorkerTokenView[]> {
    return this.#tokens.list();
  }

  async revokeWorkerToken(id: string): Promise<WorkerTokenView> {
    return await this.#tokens.revoke(id);
  }

  async #recover(keepQueued: boolean): Promise<RecoveredTasks> {
    await this.#tokens.load();
    const recovered = await recoverTasks({
      tasks: this.#parts.store.tasks,
      clock: this.#clock,
      keepQueued,
      onQueued: (task) => this.#dispatcher.add(queuedTask(task)),
    });
    this.#log.info("tasks recovered", { ...recovered });
    return recovered;
  }

  #makeDispatcher(): Dispatcher {
    const { store, feed } = this.#parts;
    const { secrets, finishRetryMs, tenantLimit = TENANT_CLAIMS_DEFAULT } = this.#options;
    return new Dispatcher({
      registry: this.#registry,
      tenantLimit,
      run: {
        tasks: store.tasks,
        seal: this.#seal,
        clock: this.#clock,
        log: this.#log,
        ...(secrets === undefined ? {} : { secrets }),
        ...(finishRetryMs === undefined ? {} : { retryMs: finishRetryMs }),
        stopping: this.#stopping.signal,
        runner: (name) => this.#runners.get(name),
        withTtl: (order) => this.#registry.withTtl(order),
        claimTtlSeconds: this.#registry.liveness.claimTtlSeconds,
        onChange: ({ id }) => this.#changed(id),
        onStale: (id) => {
          this.#staleRefused += 1;
          // Whoever waits for it has not heard of what was committed elsewhere.
          this.#changed(id);
        },
        note: async (id, text) => {
          const draft = { at: this.#clock.now(), draft: { kind: "stdout", data: text } } as const;
          await feed.append(`task:${id}`, [draft]).catch((error: unknown) => {
            this.#log.warn("note not kept", { task: id, error });
          });
        },
      },
    });
  }

  async #stop(graceMs: number, leases: Promise<unknown>): Promise<void> {
    await Promise.all([this.#dispatcher.stop(graceMs), leases.catch(() => undefined)]);
    this.#stopping.abort(stopping());
    this.#waits.wakeAll();
    this.#registry.close();
    const listener = await this.#listening?.catch(() => null);
    await listener?.close();
    if (this.#parts.ownsStore) await this.#parts.store.close();
  }

  /** Ends a task from outside, wherever it is: in the queue, being claimed, or running. */
  async #end(
    id: string,
    { end, why }: { readonly end: TaskEnd; readonly why: CprgError },
  ): Promise<TaskView> {
    for (;;) {
      const run = this.#dispatcher.run(id);
      if (run === undefined) return await this.#endQueued(id, end);
      const isStopped = run.stop({ type: "end", end, why });
      await run.ended;
      const task = await this.#get(id);
      // Where the claim had failed meanwhile, the task waits again, or is claimed again.
      if (!hasTaskEnded(task)) continue;
      if (!isStopped) throw hasEnded(task);
      return taskView(task);
    }
  }

  /** Ends a task that has no run: taken out of the queue first, it gets none. */
  async #endQueued(id: string, end: TaskEnd): Promise<TaskView> {
    const queued = this.#dispatcher.take(id);
    try {
      const task = await this.#get(id);
      if (hasTaskEnded(task)) throw hasEnded(task);
      const change = { type: "finish", at: this.#clock.now(), epoch: null, end } as const;
      const ended = await this.#parts.store.tasks.change(id, change);
      this.#changed(id);
      return taskView(ended);
    } catch (error) {
      const isOver = CprgError.is(error) && error.reason === "TASK_STATUS";
      if (queued !== undefined && !isOver) this.#dispatcher.add(queued);
      throw error;
    }
  }

  /** In memory, what ended long ago goes. */
  #forgetOld(now: number): void {
    const { prune } = this.#parts;
    if (prune === undefined || now - this.#prunedAt < PRUNE_EVERY_MS) return;
    this.#prunedAt = now;
    const before = now - (this.#options.keptMs ?? MEMORY_KEPT_MS);
    void (async () => {
      while (!(await prune(before)).isDone);
    })();
  }

  async #get(id: string, tenant?: string): Promise<Task> {
    const task = await this.#parts.store.tasks.get(id);
    if (task === null || (tenant !== undefined && task.tenant !== tenant)) throw taskNotFound(id);
    return task;
  }

  #view(task: Task): TaskView {
    const isWaiting = task.status === "queued";
    return taskView(task, isWaiting ? this.#dispatcher.waiting()(queuedTask(task)) : null);
  }

  #changed(id: string): void {
    this.#parts.feed.advanced(`task:${id}`);
    this.#waits.wake(id);
  }
}

/** Name of the runner that is set without one. */
export const RUNNER_NAME_DEFAULT = "default";
const MESSAGE_CHARS_MAX = 4096;
/** How often what is old is looked for. */
const PRUNE_EVERY_MS = 60_000;

function stopping(): CprgError {
  return new CprgError("unavailable", "Cannot do this: the control plane stops", {
    reason: "STOPPING",
  });
}

function hasEnded({ id, status }: Task): CprgError {
  return new CprgError("failed_precondition", `Cannot end task "${id}": it is ${status}`, {
    reason: "TASK_STATUS",
  });
}
