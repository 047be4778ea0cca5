/** API keys in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import { changeKey, type KeyChange, type Role, type StoredKey } from "../core/key.ts";
import type { Ceilings } from "../core/limits.ts";
import { checkKeyInsert } from "./key-rules.ts";

type KeyRow = {
  id: string;
  tenant: string;
  role: string;
  name: string;
  prefix: string;
  hash: Uint8Array;
  ceilings: string | null;
  rate_per_min: number | null;
  created_at: number;
  last_used_at: number | null;
  life_ms: number | null;
  expires_at: number | null;
  rotated_at: number | null;
  revoked_at: number | null;
};

type Progress = Pick<KeyRow, "id" | "last_used_at" | "expires_at" | "rotated_at" | "revoked_at">;

/** The key store beneath the Worker. */
export class SqliteKeys {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database) {
    this.#statements = prepare(db);
  }

  insert(key: StoredKey): null {
    const { id, hash } = key;
    const isTaken = this.#statements.same.get({ id, hash }) !== null;
    checkKeyInsert(key, { isTaken, count: this.#statements.count.get()?.count ?? 0 });
    this.#statements.insert.run(toRow(key));
    return null;
  }

  list(): readonly StoredKey[] {
    return this.#statements.list.all().map(toKey);
  }

  change(id: string, change: KeyChange): StoredKey | null {
    const row = this.#statements.get.get({ id });
    if (row === null) return null;
    const key = changeKey(toKey(row), change);
    const { last_used_at, expires_at, rotated_at, revoked_at } = toRow(key);
    this.#statements.update.run({ id, last_used_at, expires_at, rotated_at, revoked_at });
    return key;
  }

  remove(ids: readonly string[]): null {
    this.#statements.remove.run({ ids: JSON.stringify(ids) });
    return null;
  }
}

function prepare(db: Database) {
  return {
    insert: db.prepare<null, KeyRow>(
      `INSERT INTO keys (id, tenant, role, name, prefix, hash, ceilings, rate_per_min, created_at,
         last_used_at, life_ms, expires_at, rotated_at, revoked_at)
       VALUES ($id, $tenant, $role, $name, $prefix, $hash, $ceilings, $rate_per_min, $created_at,
         $last_used_at, $life_ms, $expires_at, $rotated_at, $revoked_at)`,
    ),
    get: db.prepare<KeyRow, { id: string }>("SELECT * FROM keys WHERE id = $id"),
    same: db.prepare<{ id: string }, { id: string; hash: Uint8Array }>(
      "SELECT id FROM keys WHERE id = $id OR hash = $hash",
    ),
    count: db.prepare<{ count: number }, []>("SELECT count(*) AS count FROM keys"),
    list: db.prepare<KeyRow, []>("SELECT * FROM keys ORDER BY created_at, id"),
    update: db.prepare<null, Progress>(
      `UPDATE keys SET last_used_at = $last_used_at, expires_at = $expires_at,
         rotated_at = $rotated_at, revoked_at = $revoked_at WHERE id = $id`,
    ),
    remove: db.prepare<null, { ids: string }>(
      "DELETE FROM keys WHERE id IN (SELECT value FROM json_each($ids))",
    ),
  };
}

function toRow(key: StoredKey): KeyRow {
  return {
    id: key.id,
    tenant: key.tenant,
    role: key.role,
    name: key.name,
    prefix: key.prefix,
    hash: key.hash,
    ceilings: key.ceilings === null ? null : JSON.stringify(key.ceilings),
    rate_per_min: key.ratePerMin,
    created_at: key.createdAt,
    last_used_at: key.lastUsedAt,
    life_ms: key.lifeMs,
    expires_at: key.expiresAt,
    rotated_at: key.rotatedAt,
    revoked_at: key.revokedAt,
  };
}

function toKey(row: KeyRow): StoredKey {
  return {
    id: row.id,
    tenant: row.tenant,
    role: row.role as Role,
    name: row.name,
    prefix: row.prefix,
    hash: new Uint8Array(row.hash),
    ceilings: row.ceilings === null ? null : (JSON.parse(row.ceilings) as Ceilings),
    ratePerMin: row.rate_per_min,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at,
    lifeMs: row.life_ms,
    expiresAt: row.expires_at,
    rotatedAt: row.rotated_at,
    revokedAt: row.revoked_at,
  };
}
