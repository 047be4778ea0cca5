/**
 * Jobs for workers: each waits for a worker that suits it, in turn with tasks and sandboxes, and runs
 * there. The commits around a run are those of `queue.ts`. Knows no HTTP.
 */

import type { Clock } from "../core/clock.ts";
import type { Job } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Placement } from "../core/placement.ts";
import type { SecretSet } from "../core/secrets.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { PlacementRequest, WorkerClaim, WorkerPool } from "../provider/placement.ts";
import { neverRan, outcomeError } from "../record/failed-outcome.ts";
import type { Feed } from "../record/feed.ts";
import { storeEnd } from "../record/finisher.ts";
import type { JobStore } from "../store/contract.ts";
import { type PlacedRun, runPlaced } from "./placed-run.ts";
import { StopSwitch } from "./stop-switch.ts";

/** Jobs that are read at once when the queue starts. */
const PAGE_JOBS = 100;
/** After what the store did not take. */
const STORE_RETRY_MS = 1000;

/** What a queue works with. */
export interface PlacedQueueOptions {
  readonly jobs: JobStore;
  readonly feed: Pick<Feed, "append">;
  readonly pool: WorkerPool;
  /** Id of this instance of the server: owner of the jobs that it has placed. */
  readonly instance: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly secrets?: SecretSet;
  /** Called after every terminal commit: wakes readers and those who wait. */
  onTerminal(job: Job): void;
  /** Waits between attempts to store an end, for tests. */
  readonly finishRetryMs?: readonly number[];
}

/** A job that waits for a worker, or runs on one. */
interface Entry {
  readonly tenant: string;
  readonly stop: StopSwitch;
  state: "waiting" | "running";
}

/** Why a job waits for a worker. */
export interface WaitingForWorker {
  readonly code: "NO_WORKER_MATCHES" | "ALL_BUSY" | "TENANT_LIMIT";
  readonly detail: string;
}

/** Runs jobs on workers. */
export class PlacedQueue {
  readonly #options: PlacedQueueOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #ends = new Set<Promise<void>>();
  readonly #retries = new Set<Timer>();
  readonly #stopping = new AbortController();

  constructor(options: PlacedQueueOptions) {
    this.#options = options;
  }

  /** Jobs that run on workers, of one tenant or of all. */
  running(tenant?: string): number {
    return [...this.#entries.values()].filter((entry) => {
      return entry.state === "running" && (tenant === undefined || entry.tenant === tenant);
    }).length;
  }

  /** Takes up the jobs that an earlier run of the server left queued. */
  async start(): Promise<void> {
    let after: Job | undefined;
    do {
      const query = { limit: PAGE_JOBS, ...(after === undefined ? {} : { after }) };
      const page = await this.#options.jobs.placed(query);
      for (const job of page) this.add(job);
      after = page.at(-1);
    } while (after !== undefined);
  }

  /** A job was queued. */
  add(job: Job): void {
    if (this.#stopping.signal.aborted || this.#entries.has(job.id)) return;
    const entry: Entry = { tenant: job.tenant, stop: new StopSwitch(), state: "waiting" };
    this.#entries.set(job.id, entry);
    const end = this.#drive(job, entry).finally(() => {
      this.#entries.delete(job.id);
      this.#ends.delete(end);
    });
    this.#ends.add(end);
  }

  /** Asks a job to stop; one that still waits for a worker is given up. */
  stopJob(id: string): void {
    this.#entries.get(id)?.stop.stop({ reason: "user", graceMs: 0 });
  }

  /** Places no more, lets what runs go on for a grace, and resolves when the ends are stored. */
  async close(graceMs: number): Promise<void> {
    this.#stopping.abort();
    for (const retry of this.#retries) retry.clear();
    for (const { stop } of this.#entries.values()) stop.stop({ reason: "shutdown", graceMs });
    while (this.#ends.size > 0) await Promise.all(this.#ends);
  }

  /** Why a job that is queued does not run yet; null when it is about to. */
  waiting(job: Job): WaitingForWorker | null {
    if (job.placement === null) return null;
    const why = this.#options.pool.waiting(requestOf(job, job.placement));
    if (why === null) return null;
    return { code: why.code.toUpperCase() as WaitingForWorker["code"], detail: why.detail };
  }

  /** One job from its wait for a worker to its stored end. */
  async #drive(job: Job, entry: Entry): Promise<void> {
    try {
      const claim = await this.#claim(job, entry);
      if (claim === null) return;
      try {
        await this.#run(job, { entry, claim });
      } finally {
        await claim.release();
      }
    } catch (error) {
      this.#options.log.error("job not placed", { job_id: job.id, error });
      this.#addLater(job);
    }
  }

  /** It is queued still: nothing tells when a store works again. */
  #addLater(job: Job): void {
    if (this.#stopping.signal.aborted) return;
    const retry = startTimer(STORE_RETRY_MS, () => {
      this.#retries.delete(retry);
      this.add(job);
    });
    this.#retries.add(retry);
  }

  /** A worker for the job; null when it was stopped before, or no worker takes it. */
  async #claim(job: Job, { stop }: Entry): Promise<WorkerClaim | null> {
    const placement = job.placement ?? { labels: {} };
    try {
      return await this.#options.pool.claim(requestOf(job, placement), { signal: stop.signal });
    } catch (error) {
      // Cancelled, and its end is stored already; or the server stops, and it stays queued.
      if (stop.request !== null || this.#stopping.signal.aborted) return null;
      const outcome = neverRan("claim_failed", outcomeError(error));
      await this.#finish({ id: job.id, owner: null, outcome });
      return null;
    }
  }

  async #run(job: Job, { entry, claim }: { entry: Entry; claim: WorkerClaim }): Promise<void> {
    const { jobs, instance, clock } = this.#options;
    if (entry.stop.request !== null) return;
    // Cancelled meanwhile, or taken by another instance: nothing runs.
    const started = await jobs.start(job.id, instance, clock.now(), claim.workerId);
    if (started === null) return;
    entry.state = "running";
    const outcome = await this.#outcome(started, { entry, claim });
    // First the claim: a job that has ended has nothing that runs.
    await claim.release();
    await this.#finish({ id: job.id, owner: started.owner, outcome });
  }

  /** How it ended; never rejects. */
  async #outcome({ id }: Job, { entry, claim }: { entry: Entry; claim: WorkerClaim }) {
    const { jobs, feed, clock, log, secrets } = this.#options;
    try {
      const spec = await jobs.spec(id);
      if (spec === null) throw new Error(`job ${id} has no spec`);
      using _held = secrets?.hold(Object.values(spec.env));
      const append: PlacedRun["append"] = (drafts) => feed.append(`job:${id}`, drafts);
      return await runPlaced({ spec, claim, append, stop: entry.stop, clock });
    } catch (error) {
      log.error("job not run", { job_id: id, error });
      return neverRan("runner_error", outcomeError(error));
    }
  }

  async #finish(end: { id: string; owner: Job["owner"]; outcome: Outcome }): Promise<void> {
    const { jobs, clock, log, finishRetryMs } = this.#options;
    const retry = finishRetryMs === undefined ? {} : { retryMs: finishRetryMs };
    try {
      const job = await storeEnd(() => jobs.finish(end.id, end.owner, end.outcome, clock.now()), {
        log,
        fields: { job_id: end.id },
        stopping: this.#stopping.signal,
        ...retry,
      });
      if (job !== null) this.#options.onTerminal(job);
    } catch (error) {
      log.error("job end not stored, given up", { job_id: end.id, outcome: end.outcome, error });
    }
  }
}

/** Limits and events are a job's promise: only workers that run jobs themselves keep it. */
function requestOf({ id, tenant, createdAt }: Job, placement: Placement): PlacementRequest {
  return { id, tenant, placement, createdAt, needs: ["jobs"] };
}
