/** Event logs in SQLite, synchronously: runs in the Worker, inside the transaction of a batch. */

import type { Database } from "bun:sqlite";
import { splitLine } from "../core/chain.ts";
import { assert } from "../core/errors.ts";
import type { Subject } from "../core/event.ts";
import type { EventLine, LogHead, TimedDraft } from "./contract.ts";
import { noPreviousHead } from "./job-rules.ts";
import { emptyLog, endsOutsideFinish, linkDrafts, readBounds } from "./log-lines.ts";

/** Logs whose place is remembered; the others are read from their last line. */
export const OPEN_LOGS_MAX = 4096;

interface OpenLog {
  readonly id: number;
  readonly head: LogHead;
}

type LogRow = { id: number; complete: number; previous: Uint8Array | null };

/** Append and read of `(subject, seq)` logs. */
export class SqliteEvents {
  readonly #statements: ReturnType<typeof prepare>;
  /** Least recently used first. Must be told of every rollback. */
  readonly #open = new Map<Subject, OpenLog>();
  readonly #touched = new Set<Subject>();
  /** Rows that are committed, that the transaction added, and that it had at {@link noteChanges}. */
  #committedRows = 0;
  #addedRows = 0;
  #notedRows = 0;

  constructor(db: Database) {
    this.#statements = prepare(db);
  }

  /** Appends what does not end the log of a job or an exec. */
  append(subject: Subject, drafts: readonly TimedDraft[]): readonly EventLine[] {
    const isEnd = drafts.some(({ draft }) => draft.kind === "finished");
    if (isEnd && this.#hasOwner(subject)) throw endsOutsideFinish(subject);
    return this.#append(subject, drafts).lines;
  }

  /** Appends the terminal event with the tenant's chain, which moves on to this log. */
  finish(subject: Subject, draft: TimedDraft, tenant: string): void {
    const { id, head } = this.#append(subject, [draft]);
    const previous = this.#statements.chain.get({ tenant })?.head ?? noPreviousHead();
    this.#statements.setPrevious.run({ id, previous });
    this.#statements.setChain.run({ tenant, head: head.hash });
    this.#remember(subject, { id, head: { ...head, previous } });
  }

  /** Counts bytes that are kept with a log, its spec or its artifacts, and whose the log is. */
  charge(subject: Subject, tenant: string, bytes: number): void {
    if (this.#find(subject) !== null) this.#statements.charge.run({ subject, tenant, bytes });
  }

  /** Bytes that are kept for a tenant. */
  storedBytes(tenant: string): number {
    return this.#statements.stored.get({ tenant })?.bytes ?? 0;
  }

  read(subject: Subject, fromSeq: number, asked: { limit: number; maxBytes: number }): EventLine[] {
    const { limit, maxBytes } = readBounds(fromSeq, asked);
    const id = this.#find(subject)?.id;
    const page: EventLine[] = [];
    if (id === undefined) return page;
    let bytes = 0;
    for (const row of this.#statements.lines.iterate({ id, fromSeq, limit })) {
      bytes += row.line.length;
      if (page.length > 0 && bytes > maxBytes) break;
      page.push(row);
    }
    return page;
  }

  head(subject: Subject): LogHead | null {
    return this.#find(subject)?.head ?? null;
  }

  /** Rows that were appended and committed since the file was opened. */
  get committedRows(): number {
    return this.#committedRows;
  }

  /** The transaction is committed. */
  noteCommit(): void {
    this.#committedRows += this.#addedRows;
    this.#addedRows = 0;
  }

  /** Drops what is remembered of a log that was removed or renamed. */
  forget(subject: Subject): void {
    this.#open.delete(subject);
  }

  /** Starts to note what changes, so that {@link forgetChanges} can undo it. */
  noteChanges(): void {
    this.#touched.clear();
    this.#notedRows = this.#addedRows;
  }

  /** Drops what is remembered of logs that were touched since {@link noteChanges}. */
  forgetChanges(): void {
    for (const subject of this.#touched) this.#open.delete(subject);
    this.#touched.clear();
    this.#addedRows = this.#notedRows;
  }

  /** Drops everything remembered, because a whole transaction was undone. */
  forgetAll(): void {
    this.#open.clear();
    this.#touched.clear();
    this.#addedRows = 0;
  }

  #append(subject: Subject, drafts: readonly TimedDraft[]) {
    const found = this.#find(subject);
    const { lines, head } = linkDrafts(subject, found?.head ?? emptyLog(subject), drafts);
    if (lines.length === 0) return { lines, head, id: found?.id ?? 0 };
    this.#touched.add(subject);
    const id = found?.id ?? this.#create(subject);
    let bytes = 0;
    for (const { seq, line } of lines) {
      this.#statements.insert.run(id, seq, line);
      bytes += Buffer.byteLength(line);
    }
    this.#statements.grow.run(bytes, id);
    this.#addedRows += lines.length;
    if (head.complete) this.#statements.complete.run({ id });
    this.#remember(subject, { id, head });
    return { lines, head, id };
  }

  #create(subject: Subject): number {
    const row = this.#statements.create.get({ subject });
    assert(row, `no log was created for ${subject}`);
    return row.id;
  }

  #find(subject: Subject): OpenLog | null {
    const remembered = this.#open.get(subject);
    if (remembered !== undefined) {
      this.#open.delete(subject);
      this.#open.set(subject, remembered);
      return remembered;
    }
    const row = this.#statements.log.get({ subject });
    if (row === null) return null;
    const log = { id: row.id, head: this.#headOf(row) };
    this.#remember(subject, log);
    return log;
  }

  #headOf({ id, complete, previous }: LogRow): LogHead {
    const last = this.#statements.last.get({ id });
    const parts = last === null ? null : splitLine(last.line);
    assert(last !== null && parts !== null, `log ${id} has no last line with a hash`);
    return { count: last.seq, hash: parts.hash, complete: complete === 1, previous };
  }

  #remember(subject: Subject, log: OpenLog): void {
    this.#open.delete(subject);
    this.#open.set(subject, log);
    if (this.#open.size <= OPEN_LOGS_MAX) return;
    for (const oldest of this.#open.keys()) {
      this.#open.delete(oldest);
      return;
    }
  }

  /** Whether the end of this log is that of a job, an exec or a task, and commits with it. */
  #hasOwner(subject: Subject): boolean {
    const { job, exec, task } = this.#statements;
    if (subject.startsWith("job:")) return job.get({ id: subject.slice(4) }) !== null;
    if (subject.startsWith("exec:")) return exec.get({ id: subject.slice(5) }) !== null;
    return subject.startsWith("task:") && task.get({ id: subject.slice(5) }) !== null;
  }
}

function prepare(db: Database) {
  return {
    log: db.prepare<LogRow, { subject: string }>(
      "SELECT id, complete, previous FROM logs WHERE subject = $subject",
    ),
    last: db.prepare<EventLine, { id: number }>(
      "SELECT seq, line FROM events WHERE log = $id ORDER BY seq DESC LIMIT 1",
    ),
    // An exec's log is its tenant's from its first line on: a job's is charged with its spec.
    create: db.prepare<{ id: number }, { subject: string }>(
      `INSERT INTO logs (subject, tenant)
         VALUES ($subject, (SELECT tenant FROM execs WHERE 'exec:' || id = $subject)) RETURNING id`,
    ),
    // By position, as the only one that is run for every row: names cost a fifth more.
    insert: db.prepare<null, [number, number, string]>(
      "INSERT INTO events (log, seq, line) VALUES (?, ?, ?)",
    ),
    grow: db.prepare<null, [number, number]>("UPDATE logs SET bytes = bytes + ? WHERE id = ?"),
    charge: db.prepare<null, { subject: string; tenant: string; bytes: number }>(
      "UPDATE logs SET tenant = $tenant, bytes = bytes + $bytes WHERE subject = $subject",
    ),
    stored: db.prepare<{ bytes: number }, { tenant: string }>(
      "SELECT bytes FROM tenant_bytes WHERE tenant = $tenant",
    ),
    complete: db.prepare<null, { id: number }>("UPDATE logs SET complete = 1 WHERE id = $id"),
    lines: db.prepare<EventLine, { id: number; fromSeq: number; limit: number }>(
      "SELECT seq, line FROM events WHERE log = $id AND seq >= $fromSeq ORDER BY seq LIMIT $limit",
    ),
    chain: db.prepare<{ head: Uint8Array }, { tenant: string }>(
      "SELECT head FROM chains WHERE tenant = $tenant",
    ),
    setPrevious: db.prepare<null, { id: number; previous: Uint8Array }>(
      "UPDATE logs SET previous = $previous WHERE id = $id",
    ),
    setChain: db.prepare<null, { tenant: string; head: Uint8Array }>(
      `INSERT INTO chains (tenant, head) VALUES ($tenant, $head)
       ON CONFLICT DO UPDATE SET head = excluded.head`,
    ),
    job: db.prepare<{ id: string }, { id: string }>("SELECT id FROM jobs WHERE id = $id"),
    exec: db.prepare<{ id: string }, { id: string }>("SELECT id FROM execs WHERE id = $id"),
    task: db.prepare<{ id: string }, { id: string }>("SELECT id FROM tasks WHERE id = $id"),
  };
}
