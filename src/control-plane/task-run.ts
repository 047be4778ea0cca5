/**
 * One assignment of a task to a worker: claim, run, finish. Every step is committed before the next
 * is taken, and at every step the task may be stopped or the worker lost. A runner is started only
 * after `running` was committed and nobody had stopped the task: what the store refuses never runs.
 */

import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import { SecretSet } from "../core/secrets.ts";
import { hasTaskEnded, type Task, type TaskChange, type TaskEnd } from "../core/task.ts";
import { storeEnd } from "../record/finisher.ts";
import type { TaskStore } from "../store/contract.ts";
import type { ClaimLink } from "./claim-link.ts";
import type { Runner } from "./contract.ts";
import type { Env, EnvSeal } from "./env-seal.ts";
import type { ClaimOrder, WorkerSlot } from "./registered-worker.ts";
import { driveRunner } from "./run-driver.ts";
import type { QueuedTask } from "./task-queue.ts";

/** What runs work with. */
export interface TaskRunParts {
  readonly tasks: TaskStore;
  readonly seal: EnvSeal;
  readonly clock: Clock;
  readonly log: Log;
  /** Where the values of the environment are held while the claim is there. */
  readonly secrets?: SecretSet;
  /** Aborted when the control plane stops. */
  readonly stopping: AbortSignal;
  readonly retryMs?: readonly number[];
  /** The runner of this name; undefined when there is none. */
  runner(name: string): Runner | undefined;
  withTtl(order: ClaimOrder): ClaimOrder;
  readonly claimTtlSeconds: number;
  /** A change was committed. */
  onChange(task: Task): void;
  /** The store refused what this run said: another claim, or the task had ended. */
  onStale(taskId: string): void;
  note(taskId: string, text: string): Promise<void>;
}

/** Why a run is stopped: with an end for its task, or back into the queue while nothing has run. */
export type Stop =
  | { readonly type: "end"; readonly end: TaskEnd; readonly why: CprgError }
  | { readonly type: "requeue"; readonly why: CprgError };

/** How a run came out. */
export type RunEnd =
  | { readonly type: "ended" }
  /** Its claim failed; it waits again. */
  | { readonly type: "queued"; readonly isFailure: boolean }
  /** The store took nothing; whoever has it tries again later. */
  | { readonly type: "unchanged" };

/** A run. */
export class TaskRun {
  readonly queued: QueuedTask;
  readonly workerId: string;
  readonly #parts: TaskRunParts;
  readonly #slot: WorkerSlot;
  readonly #abort = new AbortController();
  #stop: Stop | null = null;
  #phase: "claiming" | "running" | "ending" = "claiming";
  /** Resolves when nothing of it runs and its end is committed; never rejects. */
  readonly ended: Promise<RunEnd>;

  constructor(queued: QueuedTask, slot: WorkerSlot, parts: TaskRunParts) {
    this.queued = queued;
    this.workerId = slot.workerId;
    this.#slot = slot;
    this.#parts = parts;
    this.ended = this.#run();
  }

  /** Whether a program may run: from then on it never goes back into the queue. */
  get isRunning(): boolean {
    return this.#phase !== "claiming";
  }

  /**
   * Stops it; the first stop counts.
   *
   * @returns false when its end was decided before
   */
  stop(stop: Stop): boolean {
    if (this.#phase === "ending" || this.#stop !== null) return false;
    this.#stop = stop;
    this.#abort.abort(stop.why);
    return true;
  }

  async #run(): Promise<RunEnd> {
    const { log } = this.#parts;
    try {
      return await this.#claimAndRun();
    } catch (error) {
      // Only a store that takes no end: the next start of the control plane ends the task.
      log.error("task not ended", { task: this.queued.id, error });
      return { type: "unchanged" };
    } finally {
      this.#slot.cancel();
    }
  }

  async #claimAndRun(): Promise<RunEnd> {
    const { id } = this.queued;
    const task = await this.#claimed();
    if (task === null) return { type: "ended" };
    if (task === "unchanged") return { type: "unchanged" };
    let env: Env;
    try {
      env = this.#parts.seal.open(id, await this.#parts.tasks.sealedEnv(id));
    } catch (error) {
      return await this.#finish(task, claimFailed(CprgError.from(error).message));
    }
    const values = Object.values(env);
    const secrets = new SecretSet();
    secrets.hold(values);
    using _held = this.#parts.secrets?.hold(values);
    const redact = (text: string): string => secrets.redact(text);
    let link: ClaimLink;
    try {
      link = await this.#ask(task, env);
    } catch (error) {
      return await this.#notClaimed(task, CprgError.from(error), redact);
    }
    return await this.#runOn(link, { task, redact });
  }

  /** The task as it is claimed; null when it is none to be claimed any more. */
  async #claimed(): Promise<Task | "unchanged" | null> {
    const { clock } = this.#parts;
    const { workerId } = this;
    try {
      return await this.#change({ type: "claim", at: clock.now(), workerId });
    } catch (error) {
      const { reason, code } = CprgError.from(error);
      // Somebody else was first: another claim, a cancel, or retention.
      if (reason === "TASK_STATUS" || code === "not_found") return null;
      this.#parts.log.warn("task not claimed", { task: this.queued.id, error });
      return "unchanged";
    }
  }

  async #ask(task: Task, env: Env): Promise<ClaimLink> {
    this.#abort.signal.throwIfAborted();
    const { withTtl, claimTtlSeconds } = this.#parts;
    const order = {
      taskId: task.id,
      epoch: task.epoch,
      env: { ...env },
      repoUrl: task.repoUrl ?? "",
      ref: task.ref ?? "",
      claimTtlSeconds,
    };
    return await this.#slot.claim(withTtl(order), this.#abort.signal);
  }

  async #notClaimed(
    task: Task,
    error: CprgError,
    redact: (text: string) => string,
  ): Promise<RunEnd> {
    const stop = this.#stop;
    if (stop?.type === "end") return await this.#finish(task, stop.end);
    const isFailure = stop === null;
    // A worker that takes no other claim has tried nothing.
    const isFull = error.reason === "ALREADY_CLAIMED";
    const message = bounded(redact(error.message));
    const changed = await this.#persist(task, {
      type: "unclaim",
      at: this.#parts.clock.now(),
      epoch: task.epoch,
      reason: isFailure ? "claim_failed" : "shutdown",
      error: message,
      isUncounted: !isFailure || isFull || error.reason === "DRAINING",
    });
    if (changed === null || hasTaskEnded(changed)) return { type: "ended" };
    return { type: "queued", isFailure: isFailure && !isFull };
  }

  async #runOn(
    link: ClaimLink,
    { task, redact }: { readonly task: Task; readonly redact: (text: string) => string },
  ): Promise<RunEnd> {
    const { clock, note } = this.#parts;
    if (this.#stop !== null) {
      await link.release();
      return await this.#notClaimed(task, this.#stop.why, redact);
    }
    const running = await this.#persist(task, { type: "run", at: clock.now(), epoch: task.epoch });
    // Refused: it was cancelled while it was claimed, or another claim is newer. Nothing runs.
    if (running === null) {
      await link.release();
      return { type: "ended" };
    }
    this.#phase = "running";
    const end = await driveRunner({
      runner: this.#parts.runner(task.runner),
      task: running,
      link,
      stop: this.#abort,
      stopEnd: () => (this.#stop === null ? null : endOf(this.#stop)),
      note: (text) => note(task.id, redact(text)),
      onDecided: () => {
        this.#phase = "ending";
      },
    });
    const error = end.error === undefined ? {} : { error: bounded(redact(end.error)) };
    return await this.#finish(task, { ...end, ...error });
  }

  async #finish(task: Task, end: TaskEnd): Promise<RunEnd> {
    this.#phase = "ending";
    const at = this.#parts.clock.now();
    await this.#persist(task, { type: "finish", at, epoch: task.epoch, end });
    return { type: "ended" };
  }

  /** Commits a change of this claim, however often that takes; null when it is refused. */
  async #persist({ id, epoch }: Task, change: TaskChange): Promise<Task | null> {
    const { log, stopping, retryMs, onStale } = this.#parts;
    return await storeEnd(
      async () => {
        try {
          return await this.#change(change);
        } catch (error) {
          const { reason, code } = CprgError.from(error);
          const isStale = reason === "STALE_EPOCH" || reason === "TASK_STATUS";
          if (!isStale && code !== "not_found") throw error;
          onStale(id);
          return null;
        }
      },
      {
        log,
        fields: { task: id, epoch },
        stopping,
        ...(retryMs === undefined ? {} : { retryMs }),
      },
    );
  }

  async #change(change: TaskChange): Promise<Task> {
    const task = await this.#parts.tasks.change(this.queued.id, change);
    this.#parts.onChange(task);
    return task;
  }
}

/** What has begun to run does not go back into the queue. */
function endOf(stop: Stop): TaskEnd {
  if (stop.type === "end") return stop.end;
  return { status: "failed", reason: "shutdown", error: stop.why.message };
}

function claimFailed(error: string): TaskEnd {
  return { status: "failed", reason: "claim_failed", error };
}

/** Characters of what is said of a failure; the store takes twice as many. */
const ERROR_CHARS_MAX = 4096;

function bounded(text: string): string {
  return text.slice(0, ERROR_CHARS_MAX).toWellFormed();
}
