// The step that counts bytes: what an older file holds is counted too, and what goes is taken off.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { MIGRATIONS, migrate } from "../../src/store/migrations.ts";
import { TENANCY } from "../../src/store/tenancy-schema.ts";

function bytesOf(db: Database): unknown {
  return db.query("SELECT tenant, bytes FROM tenant_bytes ORDER BY tenant").all();
}

test("an older file's logs and specs are counted, and given back when they go", () => {
  using db = new Database(":memory:", { strict: true });
  db.run("PRAGMA foreign_keys = ON");
  migrate(db, MIGRATIONS.slice(0, MIGRATIONS.indexOf(TENANCY)));
  const job = "INSERT INTO jobs (id, tenant, status, language, limits, labels, created_at) VALUES";
  db.run(
    `${job} ('1', 'a', 'queued', 'x', '{}', '{}', 1), ('2', 'b', 'queued', 'x', '{}', '{}', 1)`,
  );
  db.run("INSERT INTO job_specs VALUES ('1', 'é'), ('2', 'spec')");
  db.run("INSERT INTO logs (id, subject) VALUES (1, 'job:1'), (2, 'job:2'), (3, 'exec:3')");
  db.run("INSERT INTO events VALUES (1, 1, 'ééé'), (1, 2, 'xx'), (2, 1, 'y'), (3, 1, 'zzz')");
  migrate(db);
  expect(bytesOf(db)).toEqual([
    { tenant: "a", bytes: 10 },
    { tenant: "b", bytes: 5 },
  ]);
  db.run("UPDATE logs SET tenant = 'b', bytes = bytes + 1 WHERE id = 3");
  db.run("UPDATE logs SET bytes = bytes + 4 WHERE id = 2");
  db.run("DELETE FROM logs WHERE id = 1");
  expect(bytesOf(db)).toEqual([
    { tenant: "a", bytes: 0 },
    { tenant: "b", bytes: 13 },
  ]);
});
