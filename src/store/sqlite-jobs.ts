/** Jobs and their queue in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import { assert } from "../core/errors.ts";
import { canChange, type Job, type JobSpec, reduceJob } from "../core/job.ts";
import { STATUSES, type Status } from "../core/reasons.ts";
import type {
  EarlierRequest,
  JobPage,
  JobQuery,
  OnceRequest,
  PlacedQuery,
  TenantShare,
} from "./contract.ts";
import { type JobRow, toJob, toRow } from "./job-row.ts";
import { checkInsert, isFinishableBy, keptSpec, queuedDraft } from "./job-rules.ts";
import { finishedDraft } from "./log-lines.ts";
import type { StoreOps } from "./protocol.ts";
import type { SqliteEvents } from "./sqlite-events.ts";
import { SqliteJobRequests } from "./sqlite-job-requests.ts";
import { pageOfRows } from "./sqlite-page.ts";

/** The job store beneath the Worker. */
export class SqliteJobs {
  readonly #db: Database;
  readonly #events: SqliteEvents;
  readonly #requests: SqliteJobRequests;
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database, events: SqliteEvents) {
    this.#db = db;
    this.#events = events;
    this.#requests = new SqliteJobRequests(db);
    this.#statements = prepare(db);
  }

  insert(job: Job, spec: JobSpec): null {
    checkInsert(job, this.get(job.id));
    this.#statements.insert.run(toRow(job));
    const text = JSON.stringify(spec);
    this.#statements.insertSpec.run({ id: job.id, spec: text });
    this.#statements.insertLabels.run({ id: job.id });
    this.#events.append(`job:${job.id}`, [queuedDraft(job)]);
    this.#events.charge(`job:${job.id}`, job.tenant, Buffer.byteLength(text));
    return null;
  }

  insertOnce(job: Job, spec: JobSpec, request: OnceRequest): EarlierRequest | null {
    const earlier = this.earlier(job.tenant, request);
    if (earlier !== null) return earlier;
    this.insert(job, spec);
    this.#requests.keep(job, request);
    return null;
  }

  earlier(tenant: string, request: Pick<OnceRequest, "key" | "since">): EarlierRequest | null {
    return this.#requests.find(tenant, request);
  }

  get(id: string): Job | null {
    const row = this.#statements.get.get({ id });
    return row === null ? null : toJob(row);
  }

  spec(id: string): JobSpec | null {
    const row = this.#statements.spec.get({ id });
    return row === null ? null : (JSON.parse(row.spec) as JobSpec);
  }

  list({ tenant, status, language, label, ...query }: JobQuery): JobPage {
    const { from, place, where } = listSource(label !== undefined);
    if (status !== undefined) where.push("jobs.status = $status");
    if (language !== undefined) where.push("jobs.language = $language");
    const values = {
      tenant,
      ...(status === undefined ? {} : { status }),
      ...(language === undefined ? {} : { language }),
      ...label,
    };
    const { items, nextCursor } = pageOfRows(
      this.#db,
      { ...query, select: `SELECT jobs.* FROM ${from}`, where, values, place },
      toJob,
    );
    return { jobs: items, nextCursor };
  }

  next(busyTenants: readonly string[], shares: readonly TenantShare[]): Job | null {
    const row = this.#statements.next.get({
      busy: JSON.stringify(busyTenants),
      shares: JSON.stringify(shares),
    });
    return row === null ? null : toJob(row);
  }

  placed({ limit, after }: PlacedQuery): readonly Job[] {
    const { createdAt, id } = after ?? { createdAt: -1, id: "" };
    return this.#statements.placed.all({ limit, createdAt, id }).map(toJob);
  }

  queuedCount(tenant: string | null): number {
    if (tenant === null) return this.counts().queued;
    return this.#statements.queued.get({ tenant })?.count ?? 0;
  }

  counts(): Readonly<Record<Status, number>> {
    const found = new Map(this.#statements.counts.all().map((row) => [row.status, row.count]));
    const counts = STATUSES.map((status) => [status, found.get(status) ?? 0]);
    return Object.fromEntries(counts) as Record<Status, number>;
  }

  start({ id, instance, at, workerId }: StoreOps["start"]["input"]): StoreOps["start"]["output"] {
    const row = this.#statements.get.get({ id });
    if (row === null) return null;
    const job = toJob(row);
    const owner = { instance, epoch: row.epoch + 1 };
    const change = { type: "start", at, owner, workerId } as const;
    if (!canChange(job, change)) return null;
    const started = reduceJob(job, change);
    this.#update(started);
    return { ...started, owner };
  }

  finish({ id, owner, outcome, at }: StoreOps["finish"]["input"]): Job | null {
    const job = this.get(id);
    if (job === null || !isFinishableBy(job, owner)) return null;
    const finished = reduceJob(job, { type: "finish", at, outcome });
    this.#update(finished);
    const { tenant } = job;
    this.#events.charge(`job:${id}`, tenant, this.#cutSpec(id));
    this.#events.finish(`job:${id}`, { at, draft: finishedDraft(outcome) }, tenant);
    return finished;
  }

  orphans(livingInstances: readonly string[]): readonly Job[] {
    return this.#statements.orphans.all({ living: JSON.stringify(livingInstances) }).map(toJob);
  }

  /** Keeps of the spec what is kept after the end; returns the change of its size. */
  #cutSpec(id: string): number {
    const before = this.#statements.spec.get({ id })?.spec;
    if (before === undefined) return 0;
    const spec = JSON.stringify(keptSpec(JSON.parse(before) as JobSpec));
    if (spec === before) return 0;
    this.#statements.updateSpec.run({ id, spec });
    return Buffer.byteLength(spec) - Buffer.byteLength(before);
  }

  #update(job: Job): void {
    const { id, status, started_at, finished_at, instance, epoch, outcome, worker } = toRow(job);
    const changed = this.#statements.update.run({
      id,
      status,
      started_at,
      finished_at,
      instance,
      epoch,
      outcome,
      worker,
    });
    assert(changed.changes > 0, `job ${id} was not updated`);
  }
}

/** Where lists read from: the jobs of a tenant, or those with one label. */
function listSource(hasLabel: boolean) {
  if (!hasLabel) {
    return { from: "jobs", place: "jobs.created_at, jobs.id", where: ["jobs.tenant = $tenant"] };
  }
  return {
    from: "job_labels AS label CROSS JOIN jobs ON jobs.id = label.job",
    place: "label.created_at, label.job",
    where: ["label.tenant = $tenant", "label.name = $name", "label.value = $value"],
  };
}

function prepare(db: Database) {
  return {
    insert: db.prepare<null, JobRow>(
      `INSERT INTO jobs (id, tenant, status, language, limits, labels, created_at, started_at,
         finished_at, instance, epoch, outcome, placement, worker)
       VALUES ($id, $tenant, $status, $language, $limits, $labels, $created_at, $started_at,
         $finished_at, $instance, $epoch, $outcome, $placement, $worker)`,
    ),
    insertSpec: db.prepare<null, { id: string; spec: string }>(
      "INSERT INTO job_specs (id, spec) VALUES ($id, $spec)",
    ),
    // Text that SQLite reads differently from JSON, such as lone surrogates, may meet its like.
    insertLabels: db.prepare<null, { id: string }>(
      `INSERT OR IGNORE INTO job_labels (tenant, name, value, created_at, job)
         SELECT jobs.tenant, label.key, label.value, jobs.created_at, jobs.id
         FROM jobs, json_each(jobs.labels) AS label WHERE jobs.id = $id`,
    ),
    updateSpec: db.prepare<null, { id: string; spec: string }>(
      "UPDATE job_specs SET spec = $spec WHERE id = $id",
    ),
    get: db.prepare<JobRow, { id: string }>("SELECT * FROM jobs WHERE id = $id"),
    spec: db.prepare<{ spec: string }, { id: string }>("SELECT spec FROM job_specs WHERE id = $id"),
    next: db.prepare<JobRow, { busy: string; shares: string }>(OLDEST_IN_TURN),
    placed: db.prepare<JobRow, { limit: number; createdAt: number; id: string }>(
      `SELECT * FROM jobs WHERE status = 'queued' AND placement IS NOT NULL
         AND (created_at, id) > ($createdAt, $id) ORDER BY created_at, id LIMIT $limit`,
    ),
    queued: db.prepare<{ count: number }, { tenant: string }>(
      "SELECT count(*) AS count FROM jobs WHERE tenant = $tenant AND status = 'queued'",
    ),
    counts: db.prepare<{ status: string; count: number }, []>(
      "SELECT status, count FROM job_counts",
    ),
    update: db.prepare<
      null,
      Omit<JobRow, "tenant" | "language" | "limits" | "labels" | "created_at" | "placement">
    >(
      `UPDATE jobs SET status = $status, started_at = $started_at, finished_at = $finished_at,
         instance = $instance, epoch = $epoch, outcome = $outcome, worker = $worker
       WHERE id = $id`,
    ),
    orphans: db.prepare<JobRow, { living: string }>(
      `SELECT * FROM jobs WHERE status = 'running'
         AND instance NOT IN (SELECT value FROM json_each($living)) ORDER BY created_at, id`,
    ),
  };
}

/** Steps from tenant to tenant through the index, so that one long queue costs the others nothing. */
const OLDEST_IN_TURN = `
WITH RECURSIVE shares (tenant, share, turn) AS MATERIALIZED (
  SELECT value ->> 'tenant', value ->> 'share', value ->> 'turn' FROM json_each($shares)
), waiting (tenant) AS (
  SELECT min(tenant) FROM jobs WHERE status = 'queued' AND placement IS NULL
  UNION ALL
  SELECT (
    SELECT min(tenant) FROM jobs
    WHERE status = 'queued' AND placement IS NULL AND tenant > waiting.tenant
  )
  FROM waiting WHERE waiting.tenant IS NOT NULL
)
SELECT jobs.* FROM waiting JOIN jobs ON jobs.id = (
  SELECT id FROM jobs WHERE status = 'queued' AND placement IS NULL AND tenant = waiting.tenant
  ORDER BY created_at, id LIMIT 1
)
LEFT JOIN shares ON shares.tenant = waiting.tenant
WHERE waiting.tenant NOT IN (SELECT value FROM json_each($busy))
ORDER BY coalesce(share, 0), coalesce(turn, 0), jobs.created_at, jobs.id LIMIT 1`;
