/** The store that lives in this process and dies with it: `cprg run` and tests use it. */

import type { Subject } from "../core/event.ts";
import { canChange, type Job, type JobOwner, type JobSpec, reduceJob } from "../core/job.ts";
import type { Outcome } from "../core/outcome.ts";
import { STATUSES, type Status } from "../core/reasons.ts";
import type {
  EventLine,
  JobPage,
  JobQuery,
  LogHead,
  Store,
  TenantShare,
  TimedDraft,
} from "./contract.ts";
import { checkListLimit, fromCursor, toCursor } from "./job-cursor.ts";
import {
  byAge,
  checkInsert,
  isFinishableBy,
  keptSpec,
  noPreviousHead,
  queuedDraft,
} from "./job-rules.ts";
import { emptyLog, endsOutsideFinish, finishedDraft, linkDrafts, readBounds } from "./log-lines.ts";
import { memoryKeys } from "./memory-keys.ts";

/** A store in memory. Closing it forgets everything. */
export function memoryStore(): Store {
  const logs = new MemoryLogs();
  const jobs = new MemoryJobs(logs);
  return {
    events: {
      append: async (subject, drafts) => {
        if (jobs.has(subject) && drafts.some(({ draft }) => draft.kind === "finished")) {
          throw endsOutsideFinish();
        }
        return logs.append(subject, drafts);
      },
      read: async (subject, fromSeq, bounds) => logs.read(subject, fromSeq, bounds),
      head: async (subject) => logs.head(subject),
    },
    jobs: {
      insert: async (job, spec) => jobs.insert(job, spec),
      get: async (id) => jobs.get(id),
      spec: async (id) => jobs.spec(id),
      list: async (query) => jobs.list(query),
      next: async (busyTenants, shares) => jobs.next(busyTenants, shares),
      storedBytes: async (tenant) => jobs.storedBytes(tenant),
      queuedCount: async (tenant) => jobs.queuedCount(tenant),
      counts: async () => jobs.counts(),
      start: async (id, instance, at) => jobs.start(id, instance, at),
      finish: async (id, owner, outcome, at) => jobs.finish(id, { owner, outcome, at }),
      orphans: async (livingInstances) => jobs.orphans(livingInstances),
    },
    keys: memoryKeys(),
    check: async () => undefined,
    close: async () => {
      logs.clear();
      jobs.clear();
    },
  };
}

class MemoryLogs {
  readonly #logs = new Map<Subject, { head: LogHead; readonly lines: EventLine[] }>();

  append(subject: Subject, drafts: readonly TimedDraft[]): readonly EventLine[] {
    const log = this.#logs.get(subject) ?? { head: emptyLog(subject), lines: [] };
    const linked = linkDrafts(subject, log.head, drafts);
    if (linked.lines.length === 0) return [];
    log.head = linked.head;
    for (const line of linked.lines) log.lines.push(line);
    this.#logs.set(subject, log);
    return linked.lines;
  }

  /** Appends the terminal event and the tenant's previous head. */
  finish(subject: Subject, draft: TimedDraft, previous: Uint8Array): LogHead {
    this.append(subject, [draft]);
    const log = this.#logs.get(subject);
    if (log === undefined) throw new Error("BUG(cprg): a log without its last line");
    log.head = { ...log.head, previous };
    return log.head;
  }

  read(subject: Subject, fromSeq: number, asked: { limit: number; maxBytes: number }): EventLine[] {
    const { limit, maxBytes } = readBounds(fromSeq, asked);
    const lines = this.#logs.get(subject)?.lines ?? [];
    const page: EventLine[] = [];
    let bytes = 0;
    for (let index = fromSeq - 1; index < lines.length && page.length < limit; index += 1) {
      const line = lines[index];
      if (line === undefined) break;
      bytes += line.line.length;
      if (page.length > 0 && bytes > maxBytes) break;
      page.push(line);
    }
    return page;
  }

  /** Bytes of a log's lines. */
  bytes(subject: Subject): number {
    const lines = this.#logs.get(subject)?.lines ?? [];
    return lines.reduce((sum, { line }) => sum + Buffer.byteLength(line), 0);
  }

  head(subject: Subject): LogHead | null {
    return this.#logs.get(subject)?.head ?? null;
  }

  clear(): void {
    this.#logs.clear();
  }
}

class MemoryJobs {
  readonly #logs: MemoryLogs;
  readonly #jobs = new Map<string, { job: Job; spec: JobSpec }>();
  readonly #chains = new Map<string, Uint8Array>();

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
    const waiting = this.#all().filter((job) => job.status === "queued" && !busy.has(job.tenant));
    const inTurn = (a: Job, b: Job) =>
      place(a).share - place(b).share || place(a).turn - place(b).turn || byAge(a, b);
    return waiting.sort(inTurn)[0] ?? null;
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

  start(id: string, instance: string, at: number): (Job & { owner: JobOwner }) | null {
    const entry = this.#jobs.get(id);
    if (entry === undefined) return null;
    const owner = { instance, epoch: (entry.job.owner?.epoch ?? 0) + 1 };
    const change = { type: "start", at, owner } as const;
    if (!canChange(entry.job, change)) return null;
    entry.job = reduceJob(entry.job, change);
    return { ...entry.job, owner };
  }

  finish(id: string, end: { owner: JobOwner | null; outcome: Outcome; at: number }): Job | null {
    const entry = this.#jobs.get(id);
    if (entry === undefined || !isFinishableBy(entry.job, end.owner)) return null;
    const { tenant } = entry.job;
    const draft = { at: end.at, draft: finishedDraft(end.outcome) };
    const previous = this.#chains.get(tenant) ?? noPreviousHead();
    const head = this.#logs.finish(`job:${id}`, draft, previous);
    this.#chains.set(tenant, head.hash);
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

  clear(): void {
    this.#jobs.clear();
    this.#chains.clear();
  }

  #all(): Job[] {
    return [...this.#jobs.values()].map(({ job }) => job);
  }
}
