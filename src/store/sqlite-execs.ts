/** Execs of sandboxes in SQLite, synchronously: runs in the Worker, inside a transaction. */

import type { Database } from "bun:sqlite";
import { type EndedExec, type ExecRecord, endExec } from "../core/exec.ts";
import type { Limits } from "../core/limits.ts";
import type { Outcome } from "../core/outcome.ts";
import type { ExecPage, ExecQuery } from "./contract.ts";
import { finishedDraft } from "./log-lines.ts";
import { alreadyExists } from "./sandbox-rules.ts";
import type { SqliteEvents } from "./sqlite-events.ts";
import { pageOfRows } from "./sqlite-page.ts";

/** Columns of `execs`; structures are JSON. */
type ExecRow = {
  id: string;
  sandbox: string;
  tenant: string;
  status: string;
  argv: string;
  has_terminal: number;
  limits: string;
  created_at: number;
  finished_at: number | null;
  instance: string;
  outcome: string | null;
};

/** The exec store beneath the Worker. */
export class SqliteExecs {
  readonly #db: Database;
  readonly #events: SqliteEvents;
  readonly #statements: ReturnType<typeof prepare>;

  constructor(db: Database, events: SqliteEvents) {
    this.#db = db;
    this.#events = events;
    this.#statements = prepare(db);
  }

  insert(exec: ExecRecord): null {
    if (this.get(exec.id) !== null) throw alreadyExists("exec", exec.id);
    this.#statements.insert.run(toRow(exec));
    return null;
  }

  get(id: string): ExecRecord | null {
    const row = this.#statements.get.get({ id });
    return row === null ? null : toExec(row);
  }

  list({ sandboxId: sandbox, ...query }: ExecQuery): ExecPage {
    const { items, nextCursor } = pageOfRows(
      this.#db,
      {
        ...query,
        select: "SELECT * FROM execs",
        where: ["sandbox = $sandbox"],
        values: { sandbox },
      },
      toExec,
    );
    return { execs: items, nextCursor };
  }

  finish(id: string, outcome: Outcome, at: number): EndedExec | null {
    const exec = this.get(id);
    if (exec === null || exec.status !== "running") return null;
    const ended = endExec(exec, outcome, at);
    const { status, finished_at } = toRow(ended);
    this.#statements.finish.run({ id, status, finished_at, outcome: JSON.stringify(outcome) });
    this.#events.finish(`exec:${id}`, { at, draft: finishedDraft(outcome) }, exec.tenant);
    this.#events.charge(`exec:${id}`, exec.tenant, Buffer.byteLength(JSON.stringify(exec.argv)));
    return ended;
  }

  orphans(livingInstances: readonly string[]): readonly ExecRecord[] {
    return this.#statements.orphans.all({ living: JSON.stringify(livingInstances) }).map(toExec);
  }
}

function prepare(db: Database) {
  return {
    insert: db.prepare<null, ExecRow>(
      `INSERT INTO execs (id, sandbox, tenant, status, argv, has_terminal, limits, created_at,
         finished_at, instance, outcome)
       VALUES ($id, $sandbox, $tenant, $status, $argv, $has_terminal, $limits, $created_at,
         $finished_at, $instance, $outcome)`,
    ),
    get: db.prepare<ExecRow, { id: string }>("SELECT * FROM execs WHERE id = $id"),
    finish: db.prepare<null, Pick<ExecRow, "id" | "status" | "finished_at" | "outcome">>(
      `UPDATE execs SET status = $status, finished_at = $finished_at, outcome = $outcome
         WHERE id = $id`,
    ),
    orphans: db.prepare<ExecRow, { living: string }>(
      `SELECT * FROM execs WHERE status = 'running'
         AND instance NOT IN (SELECT value FROM json_each($living)) ORDER BY created_at, id`,
    ),
  };
}

function toRow(exec: ExecRecord): ExecRow {
  return {
    id: exec.id,
    sandbox: exec.sandboxId,
    tenant: exec.tenant,
    status: exec.status,
    argv: JSON.stringify(exec.argv),
    has_terminal: exec.hasTerminal ? 1 : 0,
    limits: JSON.stringify(exec.limits),
    created_at: exec.createdAt,
    finished_at: exec.finishedAt,
    instance: exec.instance,
    outcome: exec.outcome === null ? null : JSON.stringify(exec.outcome),
  };
}

function toExec(row: ExecRow): ExecRecord {
  return {
    id: row.id,
    sandboxId: row.sandbox,
    tenant: row.tenant,
    status: row.status as ExecRecord["status"],
    argv: JSON.parse(row.argv) as string[],
    hasTerminal: row.has_terminal === 1,
    limits: JSON.parse(row.limits) as Limits,
    createdAt: row.created_at,
    finishedAt: row.finished_at,
    instance: row.instance,
    outcome: row.outcome === null ? null : (JSON.parse(row.outcome) as Outcome),
  };
}
