/**
 * Everything that can be asked of jobs, on behalf of one tenant: submit, look, wait, follow, cancel.
 * A job of another tenant does not exist here. Knows no HTTP.
 */

import type { SealKey } from "../core/chain.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import { isId, newId, shownId } from "../core/ids.ts";
import type { Job, JobSpec } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Placement } from "../core/placement.ts";
import { isTerminal, type Status } from "../core/reasons.ts";
import type { SecretSet } from "../core/secrets.ts";
import type { ExecProvider } from "../provider/contract.ts";
import { noWorkers, type WorkerPool } from "../provider/placement.ts";
import { exportLog } from "../record/export.ts";
import { neverRan } from "../record/failed-outcome.ts";
import type { Feed } from "../record/feed.ts";
import { replayStream } from "../record/replay-stream.ts";
import { resultStream } from "../record/result-stream.ts";
import { checkStoredBytes } from "../record/stored-bytes.ts";
import { TerminalWaits } from "../record/terminal-waits.ts";
import { freeDescriptors } from "../sandbox/free-descriptors.ts";
import type { ArtifactStore, KeptFiles } from "../store/artifacts.ts";
import type { EventLine, JobQuery, Store } from "../store/contract.ts";
import { checkCodeFile } from "./file-rules.ts";
import { pruneArtifacts } from "./keep-artifacts.ts";
import type { JobLanguage, JobLanguages } from "./languages.ts";
import { PlacedQueue } from "./placed-queue.ts";
import { checkPlacedSpec } from "./placed-spec.ts";
import { JOB_SLOTS_DEFAULT, JobQueue, TENANT_CONCURRENCY_DEFAULT } from "./queue.ts";
import { type Recovered, recoverJobs } from "./recovery.ts";
import { type JobView, jobView, resultHead } from "./views.ts";

/** Jobs that may be queued, of all tenants together. */
export const QUEUE_MAX = 1000;
/** Jobs that one tenant may have queued, so that none takes the whole queue. */
export const QUEUE_TENANT_MAX = 500;
/** When a client may try again after a full queue. */
const QUEUE_FULL_RETRY_SECONDS = 5;
/** How long a request counts that a client may send again. */
export const ONCE_WINDOW_MS = 24 * 3600 * 1000;

/** What a service works with. */
export interface JobServiceOptions {
  readonly store: Store;
  readonly feed: Feed;
  readonly provider: ExecProvider;
  /** Workers for jobs that are placed on one; without it none can be. */
  readonly pool?: WorkerPool;
  /** What is asked for where nothing is; without it jobs run on this host. */
  readonly placement?: Placement;
  readonly languages: JobLanguages;
  /** Keeps the files that programs leave in /workspace/out; nobody does without one. */
  readonly artifacts?: ArtifactStore;
  /** Signs exports. */
  readonly signingKey: SealKey;
  /** Id of this instance of the server. */
  readonly instance: string;
  readonly log: Log;
  /** Where values of jobs' variables are held while the jobs run here. */
  readonly secrets?: SecretSet;
  readonly clock?: Clock;
  readonly slots?: number;
  readonly tenantConcurrency?: number;
  readonly queueMax?: number;
  readonly queueTenantMax?: number;
  /** Bytes that may be kept for one tenant. */
  readonly tenantBytesMax?: number;
  /** Descriptors that can still be opened, for tests. */
  freeDescriptors?(): number;
  /** Waits between attempts to store an end, for tests. */
  readonly finishRetryMs?: readonly number[];
}

/** A request that a client may send again. */
export interface OnceRequest {
  readonly key: string;
  /** Tells whether two requests are the same. */
  readonly bodyHash: string;
  /** Gives up what is not queued yet; its reason is thrown. */
  readonly signal?: AbortSignal;
}

/** What a wait is bounded by. */
export interface WaitBounds {
  /** Relative. */
  readonly waitMs: number;
  readonly signal?: AbortSignal;
}

/** How many jobs there are. */
export interface JobCounts {
  readonly slots: number;
  readonly tenantConcurrency: number;
  readonly running: number;
  readonly queued: number;
}

/** Jobs as tenants use them. */
export class JobService {
  readonly #options: JobServiceOptions;
  readonly #clock: Clock;
  readonly #queue: JobQueue;
  readonly #placed: PlacedQueue | null;
  readonly #waits = new TerminalWaits();
  readonly #slots: number;
  readonly #tenantConcurrency: number;
  /** Submits between the look at the queue's length and the commit, by tenant. */
  readonly #inserting: string[] = [];
  #isStopping = false;
  #check: Promise<CprgError | null> | null = null;

  constructor(options: JobServiceOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#slots = options.slots ?? JOB_SLOTS_DEFAULT;
    this.#tenantConcurrency = options.tenantConcurrency ?? TENANT_CONCURRENCY_DEFAULT;
    const { store, feed, provider, languages, instance, log, secrets } = options;
    const { finishRetryMs, artifacts } = options;
    this.#queue = new JobQueue({
      jobs: store.jobs,
      feed,
      provider,
      languages,
      instance,
      log,
      clock: this.#clock,
      slots: this.#slots,
      tenantConcurrency: this.#tenantConcurrency,
      freeDescriptors: options.freeDescriptors ?? freeDescriptors,
      onTerminal: (job) => this.#onTerminal(job),
      ...(secrets === undefined ? {} : { secrets }),
      ...(finishRetryMs === undefined ? {} : { finishRetryMs }),
      ...(artifacts === undefined ? {} : { artifacts }),
    });
    const { pool } = options;
    const onTerminal = (job: Job): void => this.#onTerminal(job);
    this.#placed =
      pool === undefined
        ? null
        : new PlacedQueue({ ...options, jobs: store.jobs, pool, clock: this.#clock, onTerminal });
  }

  /** Why no job can be kept now, or null. Those who ask at once share one look. */
  async trouble(): Promise<CprgError | null> {
    if (this.#isStopping) return stopping();
    this.#check ??= this.#options.store
      .check()
      .then(
        () => null,
        (error: unknown) => CprgError.from(error, "check store"),
      )
      .finally(() => {
        this.#check = null;
      });
    return await this.#check;
  }

  /** How many requests wait for the end of a job. */
  get waiting(): number {
    return this.#waits.size;
  }

  /**
   * Ends what dead instances left, then begins to run jobs. Call it once, before anything else.
   *
   * @param options `keepQueued`: whether jobs that an earlier run of the server left queued run now
   */
  async start({ keepQueued }: { readonly keepQueued: boolean }): Promise<Recovered> {
    const recovered = await recoverJobs({
      jobs: this.#options.store.jobs,
      events: this.#options.store.events,
      clock: this.#clock,
      livingInstances: [this.#options.instance],
      keepQueued,
      onTerminal: (job) => this.#onTerminal(job),
    });
    await this.pruneArtifacts();
    this.#queue.start();
    await this.#placed?.start();
    return recovered;
  }

  /**
   * Takes no more jobs, gives running ones a grace, then kills them; resolves when their ends are
   * stored. Calling again can only shorten the grace. Queued jobs stay queued.
   */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    await Promise.all([this.#queue.close(graceMs), this.#placed?.close(graceMs)]);
    this.#waits.wakeAll();
  }

  /**
   * Queues a job.
   *
   * @param options `signal`: gives up what is not queued yet; its reason is thrown
   * @throws CprgError `unavailable` with reason QUEUE_FULL or STOPPING, `resource_exhausted` with
   *   reason TENANT_STORAGE_FULL, NO_INTERPRETER, or
   *   `invalid_argument` when a file would take the place of the code; `failed_precondition` with
   *   reason NO_WORKERS for one that cannot be placed here
   */
  async submit(
    tenant: string,
    asked: JobSpec,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<Job> {
    const spec = this.#placedSpec(asked);
    await this.#checkSpec(spec);
    const job = queuedJob(tenant, spec, this.#clock.now());
    await this.#insert(job, () => {
      signal?.throwIfAborted();
      return this.#options.store.jobs.insert(job, spec);
    });
    this.#added(job);
    return job;
  }

  /**
   * Queues a job, unless a request of the tenant with the same key did within
   * {@link ONCE_WINDOW_MS}.
   *
   * @returns the job as it is now, and whether an earlier request made it
   * @throws CprgError as {@link submit} does; `invalid_argument` with reason
   *   IDEMPOTENCY_KEY_REUSED when the earlier request was another
   */
  async submitOnce(
    tenant: string,
    asked: JobSpec,
    { key, bodyHash, signal }: OnceRequest,
  ): Promise<{ readonly job: Job; readonly isEarlier: boolean }> {
    const { jobs } = this.#options.store;
    const spec = this.#placedSpec(asked);
    const job = queuedJob(tenant, spec, this.#clock.now());
    const request = { key, bodyHash, since: job.createdAt - ONCE_WINDOW_MS };
    let earlier = await jobs.earlier(tenant, request);
    if (earlier === null) {
      await this.#checkSpec(spec);
      earlier = await this.#insert(job, () => {
        signal?.throwIfAborted();
        return jobs.insertOnce(job, spec, request);
      });
      if (earlier === null) this.#added(job);
    }
    if (earlier === null) return { job, isEarlier: false };
    if (earlier.bodyHash !== bodyHash) throw keyReused(key);
    return { job: await this.get(tenant, earlier.jobId), isEarlier: true };
  }

  /** @throws CprgError `not_found` */
  async get(tenant: string, id: string): Promise<Job> {
    const job = isId(id) ? await this.#options.store.jobs.get(id) : null;
    if (job === null || job.tenant !== tenant) throw notFound(id);
    return job;
  }

  /** A page of the tenant's jobs, newest first. */
  async list(query: JobQuery): Promise<{ jobs: readonly Job[]; nextCursor: string | null }> {
    return await this.#options.store.jobs.list(query);
  }

  /** A job as clients see it, with why it waits. */
  view(job: Job): JobView {
    const queue = job.placement === null ? this.#queue : this.#placed;
    return jobView(job, job.status === "queued" ? (queue?.waiting(job) ?? null) : null);
  }

  /**
   * Cancels a job, and waits for its end.
   *
   * @returns the job as it is then: terminal, or still running when the wait was too short
   * @throws CprgError `not_found`; `aborted` when it has ended already
   */
  async cancel(tenant: string, id: string, bounds: WaitBounds): Promise<Job> {
    using wait = this.#waits.open(id, bounds);
    const job = await this.get(tenant, id);
    if (isTerminal(job.status)) throw ended(job);
    const { jobs } = this.#options.store;
    const cancelled = await jobs.finish(id, null, neverRan("user"), this.#clock.now());
    if (cancelled !== null) {
      this.#stopJob(id, 0);
      this.#onTerminal(cancelled);
      return cancelled;
    }
    const spec = await jobs.spec(id);
    this.#stopJob(id, (spec?.killGraceSeconds ?? 0) * 1000);
    await wait.ended;
    return await this.get(tenant, id);
  }

  /**
   * Waits for a job's end.
   *
   * @returns the job as it is after the wait
   * @throws CprgError `not_found`
   */
  async wait(tenant: string, id: string, bounds: WaitBounds): Promise<Job> {
    using wait = this.#waits.open(id, bounds);
    const job = await this.get(tenant, id);
    if (isTerminal(job.status)) return job;
    await wait.ended;
    return await this.get(tenant, id);
  }

  /** Pieces of a result's JSON (`ResultView`), folded from the log as it is now. */
  result(job: Job): AsyncIterable<string> {
    const subject = `job:${job.id}` as const;
    return resultStream(this.#options.store.events, { subject, head: resultHead(job) });
  }

  /** Pieces of a replay's JSON: events from `fromSeq` to the newest. */
  replay(job: Job, fromSeq: number): AsyncIterable<string> {
    const subject = `job:${job.id}` as const;
    const head = { job_id: job.id };
    return replayStream(this.#options.store.events, { subject, head, fromSeq });
  }

  /** The sealed export of a job's log, in NDJSON. */
  exportLog(job: Job): AsyncIterable<Uint8Array> {
    const { store, signingKey: key } = this.#options;
    return exportLog({ store, key, subject: `job:${job.id}`, clock: this.#clock });
  }

  /** The files that a job left, as far as they are kept. */
  async files(job: Job): Promise<KeptFiles> {
    return (await this.#options.artifacts?.list(job.id)) ?? { files: [], problem: null };
  }

  /**
   * One of them; its bytes are read as they are asked for.
   *
   * @throws CprgError `not_found` with reason FILE_NOT_FOUND
   */
  async file(job: Job, path: string) {
    const file = (await this.#options.artifacts?.read(job.id, path)) ?? null;
    if (file === null) throw noSuchFile(job, path);
    return file;
  }

  /** Forgets the files of jobs that are gone, after a sweep of retention. */
  async pruneArtifacts(): Promise<number> {
    const { artifacts, store } = this.#options;
    return artifacts === undefined ? 0 : await pruneArtifacts(artifacts, store.jobs);
  }

  /** Bytes of files that are kept. */
  get artifactBytes(): number {
    return this.#options.artifacts?.usedBytes ?? 0;
  }

  /** Counts by status, of all tenants. */
  async statusCounts(): Promise<Readonly<Record<Status, number>>> {
    return await this.#options.store.jobs.counts();
  }

  /** Events from `fromSeq` on, as they come, until the job has ended or the signal is aborted. */
  subscribe(
    job: Job,
    options: { readonly fromSeq: number; readonly signal: AbortSignal },
  ): AsyncIterable<readonly EventLine[]> {
    return this.#options.feed.subscribe(`job:${job.id}`, options);
  }

  /** The languages that jobs can use here. */
  async languages(): Promise<readonly JobLanguage[]> {
    return await this.#options.languages.list();
  }

  /** @param tenant whose jobs are counted; all without one */
  async counts(tenant?: string): Promise<JobCounts> {
    return {
      slots: this.#slots,
      tenantConcurrency: this.#tenantConcurrency,
      running: this.#queue.running(tenant) + (this.#placed?.running(tenant) ?? 0),
      queued: await this.#options.store.jobs.queuedCount(tenant),
    };
  }

  #onTerminal(job: Job): void {
    this.#options.feed.advanced(`job:${job.id}`);
    this.#waits.wake(job.id);
  }

  #placedSpec(spec: JobSpec): JobSpec {
    return { ...spec, placement: spec.placement ?? this.#options.placement ?? null };
  }

  #added(job: Job): void {
    if (job.placement === null) this.#queue.wake();
    else this.#placed?.add(job);
  }

  #stopJob(id: string, graceMs: number): void {
    if (!this.#queue.stopJob(id, graceMs)) this.#placed?.stopJob(id);
  }

  async #checkSpec(spec: JobSpec): Promise<void> {
    if (this.#isStopping) throw stopping();
    if (spec.placement !== null) {
      if (this.#placed === null) throw noWorkers("run a job");
      checkPlacedSpec(spec);
      return;
    }
    if (spec.code === null) return;
    const language = await this.#options.languages.resolve(spec.language);
    checkCodeFile(spec.files, language.fileName);
  }

  async #insert<T>(job: Job, insert: () => Promise<T>): Promise<T> {
    this.#inserting.push(job.tenant);
    try {
      await this.#checkRoom(job.tenant);
      return await insert();
    } finally {
      this.#inserting.splice(this.#inserting.indexOf(job.tenant), 1);
    }
  }

  /** Submits that come at once count each other, so that together they keep the bound. */
  async #checkRoom(tenant: string): Promise<void> {
    const { queueMax = QUEUE_MAX, queueTenantMax = QUEUE_TENANT_MAX, store } = this.#options;
    const others = this.#inserting.length - 1;
    const own = this.#inserting.filter((inserting) => inserting === tenant).length - 1;
    const [all, tenants] = await Promise.all([
      store.jobs.queuedCount(),
      store.jobs.queuedCount(tenant),
      checkStoredBytes(store, tenant, { what: "take job", bytesMax: this.#options.tenantBytesMax }),
    ]);
    if (all + others >= queueMax) throw queueFull(`${queueMax} jobs are queued`);
    if (tenants + own >= queueTenantMax) {
      throw queueFull(`${queueTenantMax} jobs of tenant "${tenant}" are queued`);
    }
  }
}

function queuedJob(tenant: string, spec: JobSpec, createdAt: number): Job {
  return {
    id: newId(),
    tenant,
    status: "queued",
    language: spec.language,
    limits: spec.limits,
    labels: spec.labels,
    placement: spec.placement,
    workerId: null,
    createdAt,
    startedAt: null,
    finishedAt: null,
    owner: null,
    outcome: null,
  };
}

function keyReused(key: string): CprgError {
  return new CprgError(
    "invalid_argument",
    `Cannot submit job: Idempotency-Key "${key}" was sent with another body`,
    {
      field: "Idempotency-Key",
      reason: "IDEMPOTENCY_KEY_REUSED",
      hint: "Send each job under a key of its own",
    },
  );
}

function noSuchFile(job: Job, path: string): CprgError {
  const shown = JSON.stringify(path.slice(0, 256));
  return new CprgError("not_found", `Cannot find file ${shown}: job "${job.id}" left none`, {
    reason: "FILE_NOT_FOUND",
    hint: isTerminal(job.status)
      ? "Files in /workspace/out are kept; the list of files says which"
      : "Files are kept when the job has ended",
  });
}

function notFound(id: string): CprgError {
  return new CprgError("not_found", `Cannot find job ${shownId(id)}: there is none`, {
    reason: "JOB_NOT_FOUND",
  });
}

function ended(job: Job): CprgError {
  return new CprgError("aborted", `Cannot cancel job "${job.id}": it is ${job.status}`, {
    op: "cancel job",
    reason: "JOB_ENDED",
    retryable: false,
  });
}

function stopping(): CprgError {
  return new CprgError("unavailable", "Cannot take job: the server is stopping", {
    op: "submit job",
    reason: "STOPPING",
    retryAfterSeconds: QUEUE_FULL_RETRY_SECONDS,
  });
}

function queueFull(state: string): CprgError {
  return new CprgError("unavailable", `Cannot take job: ${state}`, {
    op: "submit job",
    reason: "QUEUE_FULL",
    hint: "Wait for jobs to end, or cancel some",
    retryAfterSeconds: QUEUE_FULL_RETRY_SECONDS,
  });
}
