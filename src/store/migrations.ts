/**
 * The schema, as numbered steps. A step that was released never changes; `user_version` counts the
 * steps that a file has seen.
 */

import type { Database } from "bun:sqlite";
import { CprgError } from "../core/errors.ts";
import { TENANCY } from "./tenancy-schema.ts";

/**
 * A line of `events` is the exact text that was hashed, and where a log stands is read from its last
 * line. The table keeps its rowid, so that logs that grow at the same time all append at its end:
 * clustered by its key, it took three times as long. Lists and the queue are ordered by
 * (created_at, id).
 */
const CREATE = `
CREATE TABLE logs (
  id INTEGER PRIMARY KEY,
  subject TEXT NOT NULL UNIQUE,
  complete INTEGER NOT NULL DEFAULT 0 CHECK (complete IN (0, 1)),
  previous BLOB CHECK (length(previous) = 32)
) STRICT;

CREATE TABLE events (
  log INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
  seq INTEGER NOT NULL CHECK (seq > 0),
  line TEXT NOT NULL,
  PRIMARY KEY (log, seq)
) STRICT;

CREATE TABLE chains (
  tenant TEXT PRIMARY KEY,
  head BLOB NOT NULL CHECK (length(head) = 32)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  language TEXT NOT NULL,
  limits TEXT NOT NULL,
  labels TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER,
  instance TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  outcome TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_by_age ON jobs (tenant, created_at, id);
CREATE INDEX jobs_by_status ON jobs (tenant, status, created_at, id);
CREATE INDEX jobs_by_language ON jobs (tenant, language, created_at, id);
CREATE INDEX jobs_queued ON jobs (tenant, created_at, id) WHERE status = 'queued';
CREATE INDEX jobs_running ON jobs (created_at, id) WHERE status = 'running';

CREATE TABLE job_specs (
  id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  spec TEXT NOT NULL
) STRICT;

CREATE TABLE job_counts (
  status TEXT PRIMARY KEY,
  count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_counted_insert AFTER INSERT ON jobs BEGIN
  INSERT INTO job_counts VALUES (new.status, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER jobs_counted_update AFTER UPDATE OF status ON jobs BEGIN
  UPDATE job_counts SET count = count - 1 WHERE status = old.status;
  INSERT INTO job_counts VALUES (new.status, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER jobs_counted_delete AFTER DELETE ON jobs BEGIN
  UPDATE job_counts SET count = count - 1 WHERE status = old.status;
END;
`;

/** Sandboxes that clients hold open, and their execs. */
const SANDBOXES = `
CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  limits TEXT NOT NULL,
  labels TEXT NOT NULL,
  idle_seconds REAL NOT NULL,
  lifetime_seconds REAL NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  reason TEXT,
  instance TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_by_age ON sandboxes (tenant, created_at, id);
CREATE INDEX sandboxes_open ON sandboxes (tenant, created_at, id) WHERE ended_at IS NULL;

CREATE TABLE execs (
  id TEXT PRIMARY KEY,
  sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  argv TEXT NOT NULL,
  has_terminal INTEGER NOT NULL CHECK (has_terminal IN (0, 1)),
  limits TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  finished_at INTEGER,
  instance TEXT NOT NULL,
  outcome TEXT
) STRICT;

CREATE INDEX execs_by_age ON execs (sandbox, created_at, id);
CREATE INDEX execs_running ON execs (created_at, id) WHERE status = 'running';
`;

/**
 * Which request made a job, for clients that ask again, and the labels of jobs, newest first within
 * one label, so that a list by label reads no other job.
 */
const REQUESTS_AND_LABELS = `
CREATE TABLE job_requests (
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  body_hash TEXT NOT NULL,
  job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_requests_by_job ON job_requests (job);
CREATE INDEX job_requests_by_age ON job_requests (created_at);

CREATE TABLE job_labels (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  PRIMARY KEY (tenant, name, value, created_at, job)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_labels_by_job ON job_labels (job);

INSERT OR IGNORE INTO job_labels
  SELECT jobs.tenant, label.key, label.value, jobs.created_at, jobs.id
  FROM jobs, json_each(jobs.labels) AS label;
`;

/** Finds what is past its retention without a look at the rest. */
const ENDED_BY_AGE = `
CREATE INDEX jobs_ended ON jobs (finished_at) WHERE finished_at IS NOT NULL;
`;

/** The same of execs and sandboxes; and what sandboxes leave counts among their tenant's bytes. */
const SANDBOXES_BY_AGE = `
CREATE INDEX execs_ended ON execs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

CREATE TRIGGER sandboxes_counted_insert AFTER INSERT ON sandboxes BEGIN
  INSERT INTO tenant_bytes
    VALUES (new.tenant, octet_length(new.limits) + octet_length(new.labels))
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER sandboxes_counted_delete AFTER DELETE ON sandboxes BEGIN
  UPDATE tenant_bytes SET bytes = bytes - octet_length(old.limits) - octet_length(old.labels)
    WHERE tenant = old.tenant;
END;
INSERT INTO tenant_bytes
  SELECT tenant, sum(octet_length(limits) + octet_length(labels)) FROM sandboxes
    WHERE true GROUP BY tenant
  ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
`;

/** Tasks; an environment is there while it waits to be delivered. */
const TASKS = `
CREATE TABLE tasks (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  runner TEXT NOT NULL,
  input TEXT NOT NULL,
  labels TEXT NOT NULL,
  repo_url TEXT,
  ref TEXT,
  attempts INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  worker TEXT,
  result TEXT NOT NULL,
  error TEXT,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER,
  sealed_env BLOB
) STRICT;

CREATE INDEX tasks_by_age ON tasks (tenant, created_at, id);
CREATE INDEX tasks_by_status ON tasks (tenant, status, created_at, id);
CREATE INDEX tasks_unfinished ON tasks (status, created_at, id) WHERE finished_at IS NULL;
CREATE INDEX tasks_ended ON tasks (finished_at) WHERE finished_at IS NOT NULL;
`;

/** Tokens of workers: what they say, never the token. */
const WORKER_TOKENS = `
CREATE TABLE worker_tokens (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  worker TEXT NOT NULL,
  labels TEXT NOT NULL,
  tenants TEXT,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;
`;

/** Jobs and sandboxes that run on workers; jobs for workers are in no turn with those of this host. */
const PLACEMENT = `
ALTER TABLE jobs ADD COLUMN placement TEXT;
ALTER TABLE jobs ADD COLUMN worker TEXT;
ALTER TABLE sandboxes ADD COLUMN placement TEXT;
ALTER TABLE sandboxes ADD COLUMN worker TEXT;

CREATE INDEX jobs_queued_here ON jobs (tenant, created_at, id)
  WHERE status = 'queued' AND placement IS NULL;
CREATE INDEX jobs_queued_placed ON jobs (created_at, id)
  WHERE status = 'queued' AND placement IS NOT NULL;

DROP TRIGGER sandboxes_counted_insert;
DROP TRIGGER sandboxes_counted_delete;
CREATE TRIGGER sandboxes_counted_insert AFTER INSERT ON sandboxes BEGIN
  INSERT INTO tenant_bytes
    VALUES (new.tenant, octet_length(new.limits) + octet_length(new.labels)
      + coalesce(octet_length(new.placement), 0))
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER sandboxes_counted_delete AFTER DELETE ON sandboxes BEGIN
  UPDATE tenant_bytes SET bytes = bytes - octet_length(old.limits) - octet_length(old.labels)
      - coalesce(octet_length(old.placement), 0)
    WHERE tenant = old.tenant;
END;
`;

/** All steps, oldest first. */
export const MIGRATIONS: readonly string[] = [
  CREATE,
  SANDBOXES,
  REQUESTS_AND_LABELS,
  ENDED_BY_AGE,
  TENANCY,
  SANDBOXES_BY_AGE,
  TASKS,
  WORKER_TOKENS,
  PLACEMENT,
];

/** What `application_id` holds: "cprg" in ASCII. */
export const APPLICATION_ID = 0x63707267;

/**
 * Brings a file to the newest schema, in one transaction.
 *
 * @throws CprgError `failed_precondition` for a file of a newer version or of another program
 */
export function migrate(db: Database, steps: readonly string[] = MIGRATIONS): void {
  db.transaction(() => {
    checkOrigin(db, steps.length);
    const version = pragma(db, "user_version");
    if (version === steps.length) return;
    for (const step of steps.slice(version)) db.run(step);
    db.run(`PRAGMA user_version = ${steps.length}`);
    db.run(`PRAGMA application_id = ${APPLICATION_ID}`);
  }).immediate();
}

/**
 * @param known how many steps this version has
 * @throws CprgError `failed_precondition` for a file of a newer version or of another program
 */
export function checkOrigin(db: Database, known: number = MIGRATIONS.length): void {
  const version = pragma(db, "user_version");
  const application = pragma(db, "application_id");
  const isNew =
    version === 0 &&
    application === 0 &&
    db.query("SELECT 1 FROM sqlite_schema LIMIT 1").get() === null;
  if (!isNew && application !== APPLICATION_ID) {
    throw new CprgError("failed_precondition", "Cannot open the store: another program made it", {
      op: "open store",
      reason: "STORE_FOREIGN",
      hint: "Name another file with CPRG_DB",
    });
  }
  if (version > known) {
    throw new CprgError(
      "failed_precondition",
      `Cannot open the store: its schema is ${version}, this version knows ${known}`,
      { op: "open store", reason: "STORE_NEWER", hint: "Run the newer cprg that made it" },
    );
  }
}

/** Value of a numeric pragma. */
export function pragma(db: Database, name: string): number {
  const row = db.query<Record<string, number>, []>(`PRAGMA ${name}`).get();
  return row?.[name] ?? 0;
}
