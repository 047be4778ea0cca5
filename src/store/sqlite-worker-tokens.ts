/** Tokens of workers in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import { revokedToken, type StoredWorkerToken } from "../core/worker-token.ts";
import { checkTokenInsert } from "./worker-token-rules.ts";

type TokenRow = {
  id: string;
  name: string;
  worker: string;
  labels: string;
  tenants: string | null;
  created_at: number;
  expires_at: number;
  revoked_at: number | null;
};

/** The token store beneath the Worker. */
export class SqliteWorkerTokens {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database) {
    this.#statements = prepare(db);
  }

  insert(token: StoredWorkerToken): null {
    const isTaken = this.#statements.get.get({ id: token.id }) !== null;
    checkTokenInsert(token, { isTaken, count: this.#statements.count.get()?.count ?? 0 });
    this.#statements.insert.run(toRow(token));
    return null;
  }

  list(): readonly StoredWorkerToken[] {
    return this.#statements.list.all().map(toToken);
  }

  revoke(id: string, at: number): StoredWorkerToken | null {
    const row = this.#statements.get.get({ id });
    if (row === null) return null;
    const token = revokedToken(toToken(row), at);
    this.#statements.revoke.run({ id, revoked_at: token.revokedAt });
    return token;
  }

  removeExpired(before: number): number {
    return this.#statements.remove.run({ before }).changes;
  }
}

function prepare(db: Database) {
  return {
    insert: db.prepare<null, TokenRow>(
      `INSERT INTO worker_tokens (id, name, worker, labels, tenants, created_at, expires_at, revoked_at)
       VALUES ($id, $name, $worker, $labels, $tenants, $created_at, $expires_at, $revoked_at)`,
    ),
    get: db.prepare<TokenRow, { id: string }>("SELECT * FROM worker_tokens WHERE id = $id"),
    count: db.prepare<{ count: number }, []>("SELECT count(*) AS count FROM worker_tokens"),
    list: db.prepare<TokenRow, []>("SELECT * FROM worker_tokens ORDER BY created_at, id"),
    revoke: db.prepare<null, Pick<TokenRow, "id" | "revoked_at">>(
      "UPDATE worker_tokens SET revoked_at = $revoked_at WHERE id = $id",
    ),
    remove: db.prepare<null, { before: number }>(
      "DELETE FROM worker_tokens WHERE expires_at < $before",
    ),
  };
}

function toRow(token: StoredWorkerToken): TokenRow {
  return {
    id: token.id,
    name: token.name,
    worker: token.workerId,
    labels: JSON.stringify(token.labels),
    tenants: token.tenants === null ? null : JSON.stringify(token.tenants),
    created_at: token.createdAt,
    expires_at: token.expiresAt,
    revoked_at: token.revokedAt,
  };
}

function toToken(row: TokenRow): StoredWorkerToken {
  return {
    id: row.id,
    name: row.name,
    workerId: row.worker,
    labels: JSON.parse(row.labels) as Record<string, string>,
    tenants: row.tenants === null ? null : (JSON.parse(row.tenants) as string[]),
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    revokedAt: row.revoked_at,
  };
}
