/**
 * Removes what ended long ago, in steps that are short for whoever waits for the Worker. A run goes
 * in one transaction with its rows and its log's name; the lines of the log follow in pieces, and
 * the pages that they leave are given back to the file system.
 */

import type { Database } from "bun:sqlite";
import type { Subject } from "../core/event.ts";
import type { Pruned } from "./contract.ts";
import { growthBytes, writeBack } from "./file-growth.ts";
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
/** Pages that a step on a full disk gives back: at first, and at least, when there was no room to. */
const TIGHT_PAGES_MAX = 4096;
const TIGHT_PAGES_MIN = PIECE_PAGES;

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
  #tightPages = TIGHT_PAGES_MAX;

  constructor(db: Database, events: SqliteEvents) {
    this.#db = db;
    this.#events = events;
    this.#statements = prepare(db);
    this.#aging = AGING.map((kind) => prepareAging(db, kind));
  }

  /** One step. @param before milliseconds since 1970: what ended earlier goes */
  step(before: number): Pruned {
    this.#isCheckpointDue = true;
    const stopAt = performance.now() + PRUNE_STEP_MS;
    const { isAtEnd, ...removed } = this.#remove(before);
    let isDone = false;
    while (isAtEnd && !isDone && performance.now() < stopAt) isDone = !this.#shrink();
    return { ...removed, isDone };
  }

  /**
   * One step on a disk that has next to no room for what a removal writes. All of it is one commit, in
   * which pages that go leave no trace: those at the file's end are cut off unwritten. Others would be
   * overwritten with zeros first (sqlite.org/pragma.html#pragma_secure_delete); here they are given
   * back without, by this step or the next.
   */
  tightStep(before: number): Pruned {
    this.#isCheckpointDue = true;
    this.#db.run("PRAGMA secure_delete = FAST");
    try {
      const { isAtEnd, ...removed } = this.#remove(before);
      let pages = this.#tightPages;
      while (pages > 0 && this.#shrink()) pages -= PIECE_PAGES;
      return { ...removed, isDone: isAtEnd && pages > 0 };
    } finally {
      this.#db.run("PRAGMA secure_delete = ON");
    }
  }

  /**
   * Has the next tight step give back more pages, or fewer, after one for which there was room, or none.
   *
   * @returns whether it differs from the last
   */
  noteTight({ isFull }: { readonly isFull: boolean }): boolean {
    const before = this.#tightPages;
    const pages = isFull ? before / 4 : before * 2;
    this.#tightPages = Math.min(Math.max(pages, TIGHT_PAGES_MIN), TIGHT_PAGES_MAX);
    return this.#tightPages !== before;
  }

  /** Removes for {@link PRUNE_STEP_MS}, or until nothing is left. */
  #remove(before: number): { runs: number; events: number; isAtEnd: boolean } {
    const stopAt = performance.now() + PRUNE_STEP_MS;
    let runs = 0;
    let events = 0;
    do {
      const removed = this.#removeLines();
      events += removed ?? 0;
      if (removed !== null) continue;
      const ended = this.#removeRuns(before);
      runs += ended;
      if (ended === 0) return { runs, events, isAtEnd: true };
    } while (performance.now() < stopAt);
    return { runs, events, isAtEnd: false };
  }

  /**
   * Writes to the file what the steps left in the write-ahead log, outside of a transaction: only
   * then is the file cut, and the log, begun anew, does not grow by what is removed.
   *
   * @param options `isTight`: not if that would take space, which is needed for the next step
   */
  checkpoint({ isTight }: { readonly isTight: boolean }): void {
    if (!this.#isCheckpointDue || (isTight && growthBytes(this.#db) > 0)) return;
    this.#isCheckpointDue = false;
    writeBack(this.#db);
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
