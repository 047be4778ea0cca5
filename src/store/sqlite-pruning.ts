/**
 * Removes what ended long ago, in steps that are short for whoever waits for the Worker. A run goes
 * in one transaction with its rows and its log's name; the lines of the log follow in pieces, and
 * the pages that they leave are given back to the file system.
 */

import type { Database } from "bun:sqlite";
import type { Subject } from "../core/event.ts";
import type { Pruned } from "./contract.ts";
import { pragma } from "./migrations.ts";
import type { SqliteEvents } from "./sqlite-events.ts";

/** Longest that one step removes, beside its last piece and its commit, in milliseconds. */
export const PRUNE_STEP_MS = 20;
/** Lines of one piece: at most 64 KiB each. */
const PIECE_LINES = 16;
/** Runs of one piece. */
const PIECE_RUNS = 16;
/** Pages of one piece that move to where others were. */
const PIECE_PAGES = 32;

/**
 * What is removed by age: a table of runs, when they ended, and whose logs theirs are. A sandbox goes
 * after its execs, or their logs would stay.
 */
const AGING = [
  { table: "jobs", ended: "finished_at", subject: "job", where: "" },
  { table: "tasks", ended: "finished_at", subject: "task", where: "" },
  { table: "execs", ended: "finished_at", subject: "exec", where: "" },
  {
    table: "sandboxes",
    ended: "ended_at",
    subject: null,
    where: "AND NOT EXISTS (SELECT 1 FROM execs WHERE sandbox = sandboxes.id)",
  },
] as const;

/** Name of a log whose run is gone: no reader finds it, and no subject is like it. */
const DOOMED = "doomed:";

/** The pruning of one database, inside the transaction of a batch. */
export class SqlitePruning {
  readonly #db: Database;
  readonly #events: SqliteEvents;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #aging: readonly ReturnType<typeof prepareAging>[];
  #isCheckpointDue = false;

  constructor(db: Database, events: SqliteEvents) {
    this.#db = db;
    this.#events = events;
    this.#statements = prepare(db);
    this.#aging = AGING.map((kind) => prepareAging(db, kind));
  }

  /** One step. @param before milliseconds since 1970: what ended earlier goes */
  step(before: number): Pruned {
    const stopAt = performance.now() + PRUNE_STEP_MS;
    let runs = 0;
    let events = 0;
    this.#isCheckpointDue = true;
    do {
      const removed = this.#removeLines();
      events += removed ?? 0;
      if (removed !== null) continue;
      const ended = this.#removeRuns(before);
      runs += ended;
      if (ended === 0 && !this.#shrink()) return { runs, events, isDone: true };
    } while (performance.now() < stopAt);
    return { runs, events, isDone: false };
  }

  /**
   * Writes to the file what the steps left in the write-ahead log, outside of a transaction: only
   * then is the file cut, and the log, begun anew, does not grow by what is removed.
   */
  checkpoint(): void {
    if (!this.#isCheckpointDue) return;
    this.#isCheckpointDue = false;
    try {
      this.#db.run("PRAGMA wal_checkpoint(PASSIVE)");
    } catch {
      // Nothing is lost: a later one does what this one could not.
    }
  }

  /** Removes a piece of a log without a run; null when there is none. */
  #removeLines(): number | null {
    const log = this.#statements.doomed.get();
    if (log === null) return null;
    const { changes } = this.#statements.removeLines.run({ id: log.id, limit: PIECE_LINES });
    if (changes < PIECE_LINES) this.#statements.removeLog.run({ id: log.id });
    return changes;
  }

  #removeRuns(before: number): number {
    for (const { subject, ended, remove } of this.#aging) {
      const runs = ended.all({ before, limit: PIECE_RUNS });
      for (const { id } of runs) {
        if (subject !== null) this.#doom(`${subject}:${id}`);
        remove.run({ id });
      }
      if (runs.length > 0) return runs.length;
    }
    return 0;
  }

  #doom(subject: Subject): void {
    this.#statements.doom.run({ subject });
    this.#events.forget(subject);
  }

  /** Gives some free pages back; false when there are none. */
  #shrink(): boolean {
    if (pragma(this.#db, "freelist_count") === 0) return false;
    // The pragma works one page a step, so it has to be read to its end.
    this.#statements.shrink.all();
    return true;
  }
}

function prepare(db: Database) {
  return {
    doomed: db.prepare<{ id: number }, []>(
      `SELECT id FROM logs WHERE subject >= '${DOOMED}' AND subject < 'doomed;' LIMIT 1`,
    ),
    doom: db.prepare<null, { subject: string }>(
      `UPDATE logs SET subject = '${DOOMED}' || id WHERE subject = $subject`,
    ),
    removeLines: db.prepare<null, { id: number; limit: number }>(
      "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE log = $id LIMIT $limit)",
    ),
    removeLog: db.prepare<null, { id: number }>("DELETE FROM logs WHERE id = $id"),
    shrink: db.prepare<null, []>(`PRAGMA incremental_vacuum(${PIECE_PAGES})`),
  };
}

function prepareAging(db: Database, { table, subject, ended, where }: (typeof AGING)[number]) {
  return {
    subject,
    ended: db.prepare<{ id: string }, { before: number; limit: number }>(
      `SELECT id FROM ${table} WHERE ${ended} < $before ${where} ORDER BY ${ended} LIMIT $limit`,
    ),
    remove: db.prepare<null, { id: string }>(`DELETE FROM ${table} WHERE id = $id`),
  };
}
