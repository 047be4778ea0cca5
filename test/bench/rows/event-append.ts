// Rows through the event log, hashed, chained and committed, against a bare batched insert of rows
// of the same size. Both write to a file of their own in WAL mode.

import { Database } from "bun:sqlite";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subject } from "../../../src/core/event.ts";
import { newId } from "../../../src/core/ids.ts";
import type { FileStore } from "../../../src/store/open.ts";
import { openStore } from "../../../src/store/open.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";

const SAMPLES = 30;
const ROWS = 5000;
/** Rows that one append carries, and one transaction of the reference. */
const BATCH = 250;
const TEXT = "x".repeat(80);

export async function eventAppend(): Promise<Row> {
  const folder = mkdtempSync(join(tmpdir(), "cprg-append-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(folder, { recursive: true }));
  const store = await openStore({ path: join(folder, "ours.db") });
  stack.defer(async () => await store.close());
  const bare = stack.use(openBare(join(folder, "bare.db")));
  const samples = await sampleInTurn(
    {
      ours: async () => toRate(await timed(async () => await append(store))),
      reference: async () => toRate(await timed(async () => insertBare(bare))),
    },
    SAMPLES,
  );
  // A rate: more is better, so the bar is on ours over the reference.
  const facts = { id: "event-append", unit: "rows/s", bar: { sign: ">=", value: 0.5 } } as const;
  const what = "events appended to the chained log / a bare batched insert";
  const row = toRow({ ...facts, what }, samples);
  const ratio = row.ours / row.reference;
  return { ...row, ratio, pass: ratio >= facts.bar.value };
}

function toRate(durationMs: number): number {
  return ROWS / (durationMs / 1000);
}

/** As a busy server does it: appends come while others are under way, and share commits. */
async function append(store: FileStore): Promise<void> {
  const subject: Subject = `exec:${newId()}`;
  const draft = { at: Date.now(), draft: { kind: "stdout", data: TEXT } } as const;
  const batch = Array(BATCH).fill(draft);
  // Nobody follows the log; one who did would have the lines read to it.
  const appends = Array.from({ length: ROWS / BATCH }, () =>
    store.events.append(subject, batch, { isSilent: true }),
  );
  await Promise.all(appends);
  if ((await store.events.head(subject))?.count !== ROWS) throw new Error("rows are missing");
}

function openBare(path: string): Database {
  const database = new Database(path);
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = FULL");
  database.run("CREATE TABLE rows (subject TEXT, seq INTEGER, line TEXT, hash BLOB)");
  return database;
}

function insertBare(database: Database): void {
  const subject = newId();
  const hash = new Uint8Array(32);
  const line = TEXT.padEnd(220, "y");
  const insert = database.prepare("INSERT INTO rows VALUES (?, ?, ?, ?)");
  const batch = database.transaction((first: number) => {
    for (let seq = first; seq < first + BATCH; seq += 1) insert.run(subject, seq, line, hash);
  });
  for (let row = 0; row < ROWS; row += BATCH) batch.immediate(row);
}
