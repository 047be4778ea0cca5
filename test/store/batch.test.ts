import { expect, test } from "bun:test";
import { BatchRunner } from "../../src/store/batch.ts";
import { openDatabase } from "../../src/store/database.ts";
import type { StoreRequest } from "../../src/store/protocol.ts";
import { OPEN_LOGS_MAX } from "../../src/store/sqlite-events.ts";
import { NOON, sampleJob, sampleOutcome, sampleSpec, stdout, TempDir } from "./samples.ts";

test("openDatabase() sets what every connection needs anew", () => {
  using folder = new TempDir();
  const database = openDatabase(folder.join("cprg.db"));
  const value = (name: string) => Object.values(database.db.query(`PRAGMA ${name}`).get() ?? {})[0];
  const names = ["synchronous", "foreign_keys", "trusted_schema", "busy_timeout", "temp_store"];
  expect(names.map((name) => [name, value(name)])).toEqual([
    ["synchronous", 2],
    ["foreign_keys", 1],
    ["trusted_schema", 0],
    ["busy_timeout", 5000],
    ["temp_store", 2],
  ]);
  database.close();
});

test("what is remembered of a log is undone with a request that fails late", () => {
  using folder = new TempDir();
  const database = openDatabase(folder.join("cprg.db"));
  const runner = new BatchRunner(database.db);
  const run = (request: StoreRequest) => {
    const [result] = runner.run([request]);
    return result ?? { output: undefined };
  };
  const job = sampleJob();
  const subject = `job:${job.id}` as const;
  run({ op: "insert", input: { job, spec: sampleSpec() } });
  database.db.run(
    "CREATE TRIGGER late BEFORE INSERT ON chains BEGIN SELECT RAISE(ABORT, 'planted'); END",
  );
  const outcome = sampleOutcome({ reason: "user" });
  const finish: StoreRequest = {
    op: "finish",
    input: { id: job.id, owner: null, outcome, at: NOON },
  };
  const failed = run(finish);
  expect("error" in failed && failed.error.message).toContain("planted");
  expect(run({ op: "get", input: { id: job.id } })).toEqual({ output: job });
  const head = { op: "head", input: { subject } } as const;
  expect(run(head)).toMatchObject({ output: { count: 1, complete: false, previous: null } });
  // The log is still open, and goes on where it stood.
  const row = run({
    op: "append",
    input: { subject, drafts: JSON.stringify([stdout("x")]), isSilent: false },
  });
  expect(row).toMatchObject({ output: { seqs: [2] } });
  database.db.run("DROP TRIGGER late");
  expect(run(finish)).toMatchObject({ output: { status: "cancelled" } });
  expect(run(head)).toMatchObject({ output: { count: 3, complete: true } });
  database.close();
});

test("an operation that does not exist is a bug, and fails alone", () => {
  using folder = new TempDir();
  const database = openDatabase(folder.join("cprg.db"));
  const runner = new BatchRunner(database.db);
  const unknown = { op: "constructor", input: null } as unknown as StoreRequest;
  const results = runner.run([unknown, { op: "counts", input: null }]);
  expect(results[0]).toMatchObject({ error: { code: "internal" } });
  expect(results[1]).toMatchObject({ output: { queued: 0 } });
  database.close();
});

test("more logs than are remembered go on where they stood", () => {
  using folder = new TempDir();
  const database = openDatabase(folder.join("cprg.db"));
  const runner = new BatchRunner(database.db);
  const round = Array.from({ length: OPEN_LOGS_MAX + 50 }, (_, index): StoreRequest => {
    return {
      op: "append",
      input: { subject: `exec:${index}`, drafts: JSON.stringify([stdout("x")]), isSilent: false },
    };
  });
  for (const seq of [1, 2]) {
    const results = runner.run(round);
    expect(results.every((result) => "output" in result)).toBe(true);
    const last = { op: "head", input: { subject: "exec:0" } } as const;
    expect(runner.run([last])[0]).toMatchObject({ output: { count: seq } });
  }
  database.close();
});
