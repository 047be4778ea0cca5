/** The store that lives in this process and dies with it: `cprg run` and tests use it. */

import type { Subject } from "../core/event.ts";
import { canChange, type Job, type JobOwner, type JobSpec, reduceJob } from "../core/job.ts";
import type { Outcome } from "../core/outcome.ts";
import { STATUSES, type Status } from "../core/reasons.ts";
import type {
  EarlierRequest,
  JobPage,
  JobQuery,
  OnceRequest,
  PlacedQuery,
  Store,
  TaskStore,
  TenantShare,
} from "./contract.ts";
import { checkListLimit, fromCursor, toCursor } from "./job-cursor.ts";
import { byAge, checkInsert, isFinishableBy, keptSpec, queuedDraft } from "./job-rules.ts";
import { endsOutsideFinish, finishedDraft } from "./log-lines.ts";
import { MemoryExecs } from "./memory-execs.ts";
import { memoryKeys } from "./memory-keys.ts";
import { MemoryLogs } from "./memory-logs.ts";
import { MemorySandboxes } from "./memory-sandboxes.ts";
import { MemoryTasks } from "./memory-tasks.ts";
import { memoryWorkerTokens } from "./memory-worker-tokens.ts";

/** Runs that one step of pruning removes. */
const PRUNE_STEP_RUNS = 8;

/** A store in memory. Closing it forgets everything. */
export function memoryStore(): Store {
  const logs = new MemoryLogs();
  const jobs = new MemoryJobs(logs);
  const sandboxes = new MemorySandboxes();
  const tasks = new MemoryTasks(logs);
  const execs = new MemoryExecs(logs);
  return {
    events: {
      append: async (subject, drafts, { isSilent = false } = {}) => {
        const isEnd = drafts.some(({ draft }) => draft.kind === "finished");
        const isOwned = [jobs, execs, tasks].some((runs) => runs.has(subject));
        if (isEnd && isOwned) throw endsOutsideFinish(subject);
        const lines = logs.append(subject, drafts);
        return isSilent ? [] : lines;
      },
      read: async (subject, fromSeq, bounds) => logs.read(subject, fromSeq, bounds),
      head: async (subject) => logs.head(subject),
    },
    jobs: {
      insert: async (job, spec) => jobs.insert(job, spec),
      insertOnce: async (job, spec, request) => jobs.insertOnce(job, spec, request),
      earlier: async (tenant, request) => jobs.earlier(tenant, request),
      get: async (id) => jobs.get(id),
      spec: async (id) => jobs.spec(id),
      list: async (query) => jobs.list(query),
      next: async (busyTenants, shares) => jobs.next(busyTenants, shares),
      queuedCount: async (tenant) => jobs.queuedCount(tenant),
      counts: async () => jobs.counts(),
      placed: async (query) => jobs.placed(query),
      start: async (id, instance, at, workerId) =>
        jobs.start(id, { instance, at, workerId: workerId ?? null }),
      finish: async (id, owner, outcome, at) => jobs.finish(id, { owner, outcome, at }),
      orphans: async (livingInstances) => jobs.orphans(livingInstances),
    },
    sandboxes: {
      insert: async (sandbox) => sandboxes.insert(sandbox),
      get: async (id) => sandboxes.get(id),
      list: async (query) => sandboxes.list(query),
      end: async (id, reason, at) => sandboxes.end(id, reason, at),
      orphans: async (livingInstances) => sandboxes.orphans(livingInstances),
    },
    execs: {
      insert: async (exec) => execs.insert(exec),
      get: async (id) => execs.get(id),
      list: async (query) => execs.list(query),
      finish: async (id, outcome, at) => execs.finish(id, outcome, at),
      orphans: async (livingInstances) => execs.orphans(livingInstances),
    },
    tasks: taskStore(tasks),
    storedBytes: async (tenant) => {
      return [jobs, sandboxes, execs, tasks].reduce(
        (sum, kept) => sum + kept.storedBytes(tenant),
        0,
      );
    },
    prune: async (before) => {
      const ended = () => [
        ...jobs.ended(before),
        ...execs.ended(before),
        ...tasks.ended(before),
        ...sandboxes.ended(before, (id) => execs.areIn(id)),
      ];
      const step = ended().slice(0, PRUNE_STEP_RUNS);
      const events = step.reduce((sum, remove) => sum + remove(), 0);
      // A sandbox may go now that its last exec has.
      return { runs: step.length, events, isDone: ended().length === 0 };
    },
    keys: memoryKeys(),
    workerTokens: memoryWorkerTokens(),
    check: async () => undefined,
    close: async () => {
      logs.clear();
      jobs.clear();
      sandboxes.clear();
      execs.clear();
      tasks.clear();
    },
  };
}

function taskStore(tasks: MemoryTasks): TaskStore {
  return {
    insert: async (task, sealedEnv) => tasks.insert(task, sealedEnv),
    get: async (id) => tasks.get(id),
    sealedEnv: async (id) => tasks.sealedEnv(id),
    list: async (query) => tasks.list(query),
    change: async (id, change) => tasks.change(id, change),
    unfinished: async (query) => tasks.unfinished(query),
  };
}

interface StartedBy {
  readonly instance: string;
  readonly at: number;
  readonly workerId: string | null;
}

class MemoryJobs {
  readonly #logs: MemoryLogs;
  readonly #jobs = new Map<string, { job: Job; spec: JobSpec }>();
  /** By tenant and key. */
  readonly #requests = new Map<string, EarlierRequest & { readonly createdAt: number }>();

  constructor(logs: MemoryLogs) {
    this.#logs = logs;
  }

  has(subject: Subject): boolean {
    return subject.startsWith("job:") && this.#jobs.has(subject.slice(4));
  }

  insert(job: Job, spec: JobSpec): void {
    checkInsert(job, this.get(job.id));
    this.#logs.append(`job:${job.id}`, [queuedDraft(job)]);
    this.#jobs.set(job.id, { job, spec });
  }

  insertOnce(job: Job, spec: JobSpec, request: OnceRequest): EarlierRequest | null {
    const earlier = this.earlier(job.tenant, request);
    if (earlier !== null) return earlier;
    this.insert(job, spec);
    const { key, bodyHash } = request;
    const kept = { jobId: job.id, bodyHash, createdAt: job.createdAt };
    this.#requests.set(JSON.stringify([job.tenant, key]), kept);
    return null;
  }

  earlier(
    tenant: string,
    { key, since }: Pick<OnceRequest, "key" | "since">,
  ): EarlierRequest | null {
    const found = this.#requests.get(JSON.stringify([tenant, key]));
    if (found === undefined || found.createdAt < since || !this.#jobs.has(found.jobId)) return null;
    return { jobId: found.jobId, bodyHash: found.bodyHash };
  }

  get(id: string): Job | null {
    return this.#jobs.get(id)?.job ?? null;
  }

  spec(id: string): JobSpec | null {
    return this.#jobs.get(id)?.spec ?? null;
  }

  list(query: JobQuery): JobPage {
    checkListLimit(query.limit);
    const after = query.cursor === undefined ? null : fromCursor(query.cursor);
    const found = this.#all()
      .filter((job) => job.tenant === query.tenant)
      .filter((job) => query.status === undefined || job.status === query.status)
      .filter((job) => query.language === undefined || job.language === query.language)
      .filter(({ labels }) => query.label === undefined || hasLabel(labels, query.label))
      .filter((job) => after === null || byAge(job, after) < 0)
      .sort((a, b) => byAge(b, a));
    const jobs = found.slice(0, query.limit);
    const last = jobs.at(-1);
    const hasMore = last !== undefined && found.length > jobs.length;
    return { jobs, nextCursor: hasMore ? toCursor(last) : null };
  }

  next(busyTenants: readonly string[], shares: readonly TenantShare[] = []): Job | null {
    const busy = new Set(busyTenants);
    const known = new Map(shares.map((share) => [share.tenant, share]));
    const place = ({ tenant }: Job) => known.get(tenant) ?? { share: 0, turn: 0 };
    const waiting = this.#queued(false).filter(({ tenant }) => !busy.has(tenant));
    const inTurn = (a: Job, b: Job) =>
      place(a).share - place(b).share || place(a).turn - place(b).turn || byAge(a, b);
    return waiting.sort(inTurn)[0] ?? null;
  }

  placed({ limit, after }: PlacedQuery): readonly Job[] {
    const waiting = this.#queued(true).filter(
      (job) => after === undefined || byAge(job, after) > 0,
    );
    return waiting.sort(byAge).slice(0, limit);
  }

  storedBytes(tenant: string): number {
    let bytes = 0;
    for (const { job, spec } of this.#jobs.values()) {
      if (job.tenant !== tenant) continue;
      bytes += this.#logs.bytes(`job:${job.id}`) + Buffer.byteLength(JSON.stringify(spec));
    }
    return bytes;
  }

  queuedCount(tenant?: string): number {
    return this.#all().filter(
      (job) => job.status === "queued" && (tenant === undefined || job.tenant === tenant),
    ).length;
  }

  counts(): Readonly<Record<Status, number>> {
    const counts = Object.fromEntries(STATUSES.map((status) => [status, 0]));
    for (const { status } of this.#all()) counts[status] = (counts[status] ?? 0) + 1;
    return counts as Record<Status, number>;
  }

  start(id: string, { instance, at, workerId }: StartedBy): (Job & { owner: JobOwner }) | null {
    const entry = this.#jobs.get(id);
    if (entry === undefined) return null;
    const owner = { instance, epoch: (entry.job.owner?.epoch ?? 0) + 1 };
    const change = { type: "start", at, owner, workerId } as const;
    if (!canChange(entry.job, change)) return null;
    entry.job = reduceJob(entry.job, change);
    return { ...entry.job, owner };
  }

  finish(id: string, end: { owner: JobOwner | null; outcome: Outcome; at: number }): Job | null {
    const entry = this.#jobs.get(id);
    if (entry === undefined || !isFinishableBy(entry.job, end.owner)) return null;
    const { tenant } = entry.job;
    const draft = { at: end.at, draft: finishedDraft(end.outcome) };
    this.#logs.finish(`job:${id}`, draft, tenant);
    entry.spec = keptSpec(entry.spec);
    entry.job = reduceJob(entry.job, { type: "finish", at: end.at, outcome: end.outcome });
    return entry.job;
  }

  orphans(livingInstances: readonly string[]): readonly Job[] {
    const living = new Set(livingInstances);
    return this.#all()
      .filter((job) => job.status === "running" && !living.has(job.owner?.instance ?? ""))
      .sort(byAge);
  }

  /** How to remove each that ended before a time: returns how many lines its log had. */
  ended(before: number): readonly (() => number)[] {
    const ended = this.#all().filter(({ finishedAt }) => (finishedAt ?? before) < before);
    return ended.map(({ id }) => () => {
      this.#jobs.delete(id);
      return this.#logs.remove(`job:${id}`);
    });
  }

  clear(): void {
    this.#jobs.clear();
    this.#requests.clear();
  }

  #queued(isPlaced: boolean): Job[] {
    return this.#all().filter(({ status, placement }) => {
      return status === "queued" && (placement !== null) === isPlaced;
    });
  }

  #all(): Job[] {
    return [...this.#jobs.values()].map(({ job }) => job);
  }
}

function hasLabel(labels: Job["labels"], { name, value }: NonNullable<JobQuery["label"]>): boolean {
  return Object.hasOwn(labels, name) && labels[name] === value;
}
