/** Sandboxes in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import type { Limits } from "../core/limits.ts";
import type { Placement } from "../core/placement.ts";
import type { SandboxEnd, SandboxRecord } from "../core/sandbox.ts";
import type { SandboxPage, SandboxQuery } from "./contract.ts";
import { alreadyExists } from "./sandbox-rules.ts";
import { pageOfRows } from "./sqlite-page.ts";

/** Columns of `sandboxes`; structures are JSON. */
type SandboxRow = {
  id: string;
  tenant: string;
  limits: string;
  labels: string;
  idle_seconds: number;
  lifetime_seconds: number;
  created_at: number;
  ended_at: number | null;
  reason: string | null;
  instance: string;
  placement: string | null;
  worker: string | null;
};

/** The sandbox store beneath the Worker. */
export class SqliteSandboxes {
  readonly #db: Database;
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database) {
    this.#db = db;
    this.#statements = prepare(db);
  }

  insert(sandbox: SandboxRecord): null {
    if (this.get(sandbox.id) !== null) throw alreadyExists("sandbox", sandbox.id);
    this.#statements.insert.run(toRow(sandbox));
    return null;
  }

  get(id: string): SandboxRecord | null {
    const row = this.#statements.get.get({ id });
    return row === null ? null : toSandbox(row);
  }

  list({ tenant, isOpen, ...query }: SandboxQuery): SandboxPage {
    const { items, nextCursor } = pageOfRows(
      this.#db,
      {
        ...query,
        select: "SELECT * FROM sandboxes",
        where: ["tenant = $tenant", ...(isOpen === true ? ["ended_at IS NULL"] : [])],
        values: { tenant },
      },
      toSandbox,
    );
    return { sandboxes: items, nextCursor };
  }

  end(id: string, reason: SandboxEnd, at: number): SandboxRecord | null {
    const { changes } = this.#statements.end.run({ id, reason, at });
    return changes === 0 ? null : this.get(id);
  }

  orphans(livingInstances: readonly string[]): readonly SandboxRecord[] {
    return this.#statements.orphans.all({ living: JSON.stringify(livingInstances) }).map(toSandbox);
  }
}

function prepare(db: Database) {
  return {
    insert: db.prepare<null, SandboxRow>(
      `INSERT INTO sandboxes (id, tenant, limits, labels, idle_seconds, lifetime_seconds,
         created_at, ended_at, reason, instance, placement, worker)
       VALUES ($id, $tenant, $limits, $labels, $idle_seconds, $lifetime_seconds, $created_at,
         $ended_at, $reason, $instance, $placement, $worker)`,
    ),
    get: db.prepare<SandboxRow, { id: string }>("SELECT * FROM sandboxes WHERE id = $id"),
    end: db.prepare<null, { id: string; reason: string; at: number }>(
      "UPDATE sandboxes SET ended_at = $at, reason = $reason WHERE id = $id AND ended_at IS NULL",
    ),
    orphans: db.prepare<SandboxRow, { living: string }>(
      `SELECT * FROM sandboxes WHERE ended_at IS NULL
         AND instance NOT IN (SELECT value FROM json_each($living)) ORDER BY created_at, id`,
    ),
  };
}

function toRow(sandbox: SandboxRecord): SandboxRow {
  return {
    id: sandbox.id,
    tenant: sandbox.tenant,
    limits: JSON.stringify(sandbox.limits),
    labels: JSON.stringify(sandbox.labels),
    idle_seconds: sandbox.idleSeconds,
    lifetime_seconds: sandbox.lifetimeSeconds,
    created_at: sandbox.createdAt,
    ended_at: sandbox.endedAt,
    reason: sandbox.reason,
    instance: sandbox.instance,
    placement: sandbox.placement === null ? null : JSON.stringify(sandbox.placement),
    worker: sandbox.workerId,
  };
}

function toSandbox(row: SandboxRow): SandboxRecord {
  return {
    id: row.id,
    tenant: row.tenant,
    limits: JSON.parse(row.limits) as Limits,
    labels: JSON.parse(row.labels) as Record<string, string>,
    placement: row.placement === null ? null : (JSON.parse(row.placement) as Placement),
    workerId: row.worker,
    idleSeconds: row.idle_seconds,
    lifetimeSeconds: row.lifetime_seconds,
    createdAt: row.created_at,
    endedAt: row.ended_at,
    reason: row.reason as SandboxEnd | null,
    instance: row.instance,
  };
}
