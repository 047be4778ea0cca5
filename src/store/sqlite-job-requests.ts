/** Which requests made which jobs, in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import type { Job } from "../core/job.ts";
import type { EarlierRequest, OnceRequest } from "./contract.ts";

/** Requests that count no more and are removed with each that is kept: more than come in. */
const FORGOTTEN_AT_ONCE = 8;

/** The requests beneath the Worker. */
export class SqliteJobRequests {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database) {
    this.#statements = prepare(db);
  }

  /** What a request made since `since`. */
  find(tenant: string, { key, since }: Pick<OnceRequest, "key" | "since">): EarlierRequest | null {
    const row = this.#statements.find.get({ tenant, key, since });
    return row === null ? null : { jobId: row.job, bodyHash: row.body_hash };
  }

  /** Keeps what a request made, in place of one that counts no more. */
  keep(job: Job, { key, bodyHash, since }: OnceRequest): void {
    this.#statements.forget.run({ since, limit: FORGOTTEN_AT_ONCE });
    const { id, tenant, createdAt } = job;
    this.#statements.keep.run({ tenant, key, bodyHash, id, createdAt });
  }
}

function prepare(db: Database) {
  return {
    find: db.prepare<
      { job: string; body_hash: string },
      { tenant: string; key: string; since: number }
    >(
      `SELECT job, body_hash FROM job_requests
         WHERE tenant = $tenant AND key = $key AND created_at >= $since`,
    ),
    keep: db.prepare<
      null,
      { tenant: string; key: string; bodyHash: string; id: string; createdAt: number }
    >(
      `INSERT OR REPLACE INTO job_requests (tenant, key, body_hash, job, created_at)
         VALUES ($tenant, $key, $bodyHash, $id, $createdAt)`,
    ),
    forget: db.prepare<null, { since: number; limit: number }>(
      `DELETE FROM job_requests WHERE (tenant, key) IN (
         SELECT tenant, key FROM job_requests WHERE created_at < $since
         ORDER BY created_at LIMIT $limit)`,
    ),
  };
}
