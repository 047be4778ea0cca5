import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename } from "node:path";
import { APPLICATION_ID, MIGRATIONS } from "../../src/store/migrations.ts";
import { openStore } from "../../src/store/open.ts";
import { allLines, failure, sampleJob, sampleSpec, stdout, TempDir } from "./samples.ts";

const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);

async function openInChild(path: string): Promise<string> {
  const fixture = `${import.meta.dir}/fixtures/open-once.ts`;
  const child = Bun.spawn([process.execPath, fixture, path], { stdout: "pipe", stderr: "inherit" });
  const output = await new Response(child.stdout).text();
  await child.exited;
  return output.trim();
}

test("openStore() makes private files under any umask", async () => {
  using folder = new TempDir();
  const umask = process.umask(0);
  try {
    const path = folder.join("sub/dir/cprg.db");
    const store = await openStore({ path });
    await store.events.append("exec:a", [stdout("")]);
    for (const suffix of ["", "-wal", "-shm", "-lock"]) expect(mode(path + suffix)).toBe("600");
    expect(mode(folder.join("sub"))).toBe("700");
    await store.close();
    expect(mode(path)).toBe("600");
  } finally {
    process.umask(umask);
  }
});

test("openStore() closes a file that others could read", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  await (await openStore({ path })).close();
  chmodSync(path, 0o644);
  const store = await openStore({ path });
  expect(mode(path)).toBe("600");
  await store.close();
});

test("openStore() sets what a file keeps: WAL, incremental vacuum, page size, our id", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const store = await openStore({ path });
  const reader = new Database(path, { readonly: true });
  const value = (name: string) => Object.values(reader.query(`PRAGMA ${name}`).get() ?? {})[0];
  expect(value("journal_mode")).toBe("wal");
  expect(value("auto_vacuum")).toBe(2);
  expect(value("page_size")).toBe(8192);
  expect(value("application_id")).toBe(APPLICATION_ID);
  expect(value("user_version")).toBe(MIGRATIONS.length);
  expect(value("integrity_check")).toBe("ok");
  reader.close();
  await store.close();
});

test("openStore() refuses a file that another store has, by any name", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const store = await openStore({ path });
  symlinkSync(basename(path), folder.join("alias.db"));
  for (const name of ["cprg.db", "alias.db"]) {
    const error = await failure(openStore({ path: folder.join(name) }));
    expect([error.code, error.reason]).toEqual(["failed_precondition", "STORE_LOCKED"]);
    expect(error.hint).toContain("CPRG_DATA_DIR");
    expect(JSON.parse(await openInChild(folder.join(name)))).toMatchObject({
      code: "failed_precondition",
      reason: "STORE_LOCKED",
    });
  }
  // The refusals took nothing from the one who has it.
  await store.events.append("exec:a", [stdout("")]);
  expect(JSON.parse(await openInChild(path))).toMatchObject({ reason: "STORE_LOCKED" });
  await store.close();
  expect(await openInChild(path)).toBe("opened");
});

test("openStore() keeps everything over a restart", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const first = await openStore({ path });
  const job = sampleJob();
  await first.jobs.insert(job, sampleSpec());
  await first.events.append(`job:${job.id}`, [stdout("1")]);
  const lines = await allLines(first.events, `job:${job.id}`);
  const head = await first.events.head(`job:${job.id}`);
  await first.close();
  const second = await openStore({ path });
  expect(await second.jobs.get(job.id)).toEqual(job);
  expect(await second.jobs.spec(job.id)).toEqual(sampleSpec());
  expect(await allLines(second.events, `job:${job.id}`)).toEqual(lines);
  expect(await second.events.head(`job:${job.id}`)).toEqual(head);
  await second.close();
});

test("openStore() opens what a death in the middle of a checkpoint left", async () => {
  using folder = new TempDir();
  const [path, whole, cut] = [
    folder.join("cprg.db"),
    folder.join("whole.db"),
    folder.join("cut.db"),
  ];
  const store = await openStore({ path });
  await store.events.append("exec:a", [stdout("x".repeat(60_000))]);
  const lines = await allLines(store.events, "exec:a");
  for (const copy of [whole, cut]) {
    for (const suffix of ["", "-wal"]) copyFileSync(path + suffix, copy + suffix);
  }
  await store.close();
  const db = new Database(whole);
  db.run("PRAGMA wal_checkpoint(TRUNCATE)");
  db.close();
  // The first page says how many there are; the others were still to come.
  writeFileSync(cut, readFileSync(whole).subarray(0, 8192));
  const again = await openStore({ path: cut });
  expect(await allLines(again.events, "exec:a")).toEqual(lines);
  await again.close();
});

test("openStore() refuses a newer schema, and leaves it as it is", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  await (await openStore({ path })).close();
  const db = new Database(path);
  db.run(`PRAGMA user_version = ${MIGRATIONS.length + 1}`);
  db.close();
  for (let round = 0; round < 2; round += 1) {
    const error = await failure(openStore({ path }));
    expect([error.code, error.reason]).toEqual(["failed_precondition", "STORE_NEWER"]);
    expect(error.message).toContain(`${MIGRATIONS.length + 1}`);
  }
});

/** Everything of a folder that a refusal must leave as it is. */
const facts = (folder: TempDir) =>
  readdirSync(folder.path).map((name) => {
    const { mode, mtimeMs, size } = lstatSync(folder.join(name));
    const text = statSync(folder.join(name)).isFile() ? readFileSync(folder.join(name), "hex") : "";
    return { name, mode, mtimeMs, size, text };
  });

const REFUSED: readonly [string, string, (path: string, folder: TempDir) => void][] = [
  ["another program's database", "STORE_FOREIGN", (path) => foreignDatabase(path)],
  [
    "another program's database behind a link",
    "STORE_FOREIGN",
    (path, folder) => {
      foreignDatabase(folder.join("other.db"));
      symlinkSync("other.db", path);
    },
  ],
  [
    "an empty database with another program's id",
    "STORE_FOREIGN",
    (path) => {
      const db = new Database(path);
      db.run("PRAGMA application_id = 7");
      db.close();
    },
  ],
  ["text", "STORE_DAMAGED", (path) => writeFileSync(path, "no database\n".repeat(1000))],
  ["a folder", "STORE_FOREIGN", (path) => mkdirSync(path, { mode: 0o755 })],
  [
    "a link to a folder",
    "STORE_FOREIGN",
    (path, folder) => {
      mkdirSync(folder.join("kept"), { mode: 0o755 });
      symlinkSync("kept", path);
    },
  ],
];

function foreignDatabase(path: string): void {
  const db = new Database(path);
  db.run("CREATE TABLE jobs (id)");
  db.close();
}

test.each(REFUSED)("openStore() refuses %s and changes nothing", async (_, reason, make) => {
  using folder = new TempDir();
  const path = folder.join("x?#%20.db");
  const umask = process.umask(0o022);
  try {
    make(path, folder);
  } finally {
    process.umask(umask);
  }
  const before = facts(folder);
  const error = await failure(openStore({ path }));
  expect(error.reason).toBe(reason);
  if (reason === "STORE_DAMAGED") expect(error.message).toContain(path);
  expect(facts(folder)).toEqual(before);
});

test("openStore() refuses a lock file that is none", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  await (await openStore({ path })).close();
  writeFileSync(`${path}-lock`, "notes\n".repeat(1000), { mode: 0o644 });
  chmodSync(`${path}-lock`, 0o644);
  const before = facts(folder);
  expect(await failure(openStore({ path }))).toMatchObject({ reason: "STORE_DAMAGED" });
  expect(facts(folder)).toEqual(before);
});

test.skipIf(process.getuid?.() !== 0)("openStore() refuses another user's file", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  await (await openStore({ path })).close();
  chownSync(path, 65_534, 65_534);
  const before = facts(folder);
  const error = await failure(openStore({ path }));
  expect([error.code, error.reason]).toEqual(["failed_precondition", "STORE_FOREIGN"]);
  expect(facts(folder)).toEqual(before);
});

test("openStore() refuses a path beneath a file", async () => {
  using folder = new TempDir();
  writeFileSync(folder.join("text.db"), "");
  expect(await failure(openStore({ path: folder.join("text.db/x.db") }))).toMatchObject({
    code: "failed_precondition",
    op: "open store",
  });
});

test("close() waits for what was asked, and refuses what comes after", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const store = await openStore({ path });
  const calls = Array.from({ length: 50 }, () => store.events.append("exec:a", [stdout("")]));
  const closed = store.close();
  const late = await failure(store.events.append("exec:a", [stdout("")]));
  expect([late.code, late.reason]).toEqual(["unavailable", "STORE_CLOSED"]);
  expect((await Promise.all(calls)).at(-1)?.[0]?.seq).toBe(50);
  await closed;
  await store.close();
  const again = await openStore({ path });
  expect(await allLines(again.events, "exec:a")).toHaveLength(50);
  await again.close();
});
