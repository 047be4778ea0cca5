import { expect, test } from "bun:test";
import { openStore } from "../../src/store/open.ts";
import { BATCH_BYTES_MAX, BATCH_REQUESTS_MAX } from "../../src/store/protocol.ts";
import { allLines, failure, finished, sampleJob, sampleSpec, stdout, TempDir } from "./samples.ts";
import { countCommits } from "./wal.ts";

async function open(folder: TempDir) {
  const path = folder.join("cprg.db");
  const store = await openStore({ path });
  return { store, commits: () => countCommits(`${path}-wal`) };
}

test("a burst of appends is one transaction, counted in the -wal file", async () => {
  using folder = new TempDir();
  const { store, commits } = await open(folder);
  const before = commits();
  const { commits: counted } = await store.stats();
  const subjects = ["exec:a", "exec:b", "exec:c"] as const;
  await Promise.all(
    Array.from({ length: 600 }, (_, index) =>
      store.events.append(subjects[index % 3] ?? "exec:a", [stdout(`${index}`)]),
    ),
  );
  expect(commits() - before).toBe(1);
  expect((await store.stats()).commits - counted).toBe(1);
  expect(await allLines(store.events, "exec:b")).toHaveLength(200);
  await store.close();
});

test("appends that wait for each other are a transaction each", async () => {
  using folder = new TempDir();
  const { store, commits } = await open(folder);
  const before = commits();
  for (let index = 0; index < 5; index += 1) await store.events.append("exec:a", [stdout("")]);
  expect(commits() - before).toBe(5);
  await store.close();
});

test("what arrives while a batch is written shares the next one", async () => {
  using folder = new TempDir();
  const { store, commits } = await open(folder);
  const before = commits();
  const first = store.events.append("exec:a", [stdout("1")]);
  // The first batch leaves in a microtask; these come while it is away.
  await Promise.resolve().then(() => undefined);
  const rest = Array.from({ length: 50 }, () => store.events.append("exec:a", [stdout("2")]));
  await Promise.all([first, ...rest]);
  expect(commits() - before).toBe(2);
  await store.close();
});

test("a batch takes so many requests and no more", async () => {
  using folder = new TempDir();
  const { store, commits } = await open(folder);
  const before = commits();
  const calls = Array.from({ length: BATCH_REQUESTS_MAX + 1 }, () =>
    store.events.append("exec:a", [stdout("")]),
  );
  await Promise.all(calls);
  expect(commits() - before).toBe(2);
  await store.close();
});

test("a batch takes so many bytes and no more, and a larger request alone", async () => {
  using folder = new TempDir();
  const { store } = await open(folder);
  const { commits: before } = await store.stats();
  const code = "x".repeat(5 * 1024 * 1024);
  const large = Array.from({ length: 3 }, () =>
    store.jobs.insert(sampleJob(), sampleSpec({ code })),
  );
  const huge = sampleJob();
  await Promise.all([...large, store.jobs.insert(huge, sampleSpec({ code: code.repeat(2) }))]);
  expect((await store.stats()).commits - before).toBe(4);
  expect((await store.jobs.spec(huge.id))?.code).toHaveLength(10 * 1024 * 1024);
  await store.close();
});

test("a batch takes so many bytes of answers and no more", async () => {
  using folder = new TempDir();
  const { store } = await open(folder);
  await store.events.append("exec:a", [stdout("1")]);
  const { commits: before } = await store.stats();
  const half = { limit: 1, maxBytes: BATCH_BYTES_MAX / 2 };
  // Every read fills half a batch, so each of the four appends is in a batch of its own.
  const calls = Array.from({ length: 4 }, () => [
    store.events.append("exec:a", [stdout("x".repeat(1000))]),
    store.events.read("exec:a", 1, half),
    store.events.read("exec:a", 1, half),
  ]);
  await Promise.all(calls.flat());
  expect((await store.stats()).commits - before).toBe(4);
  await store.close();
});

test("reads are no transaction that syncs", async () => {
  using folder = new TempDir();
  const { store, commits } = await open(folder);
  const before = commits();
  await store.events.read("exec:a", 1, { limit: 1, maxBytes: 1 });
  await store.jobs.list({ tenant: "a", limit: 1 });
  expect(commits()).toBe(before);
  expect((await store.stats()).commits).toBe(0);
  await store.close();
});

test("a request that fails is undone alone, in the batch of its neighbours", async () => {
  using folder = new TempDir();
  const { store, commits } = await open(folder);
  await store.events.append("exec:ended", [stdout("1"), finished()]);
  const taken = sampleJob();
  // Its row is written before its event turns out to have no time.
  const timeless = sampleJob({ createdAt: 9e15 });
  await store.jobs.insert(taken, sampleSpec());
  const before = commits();
  const results = await Promise.all([
    store.events.append("exec:a", [stdout("1")]),
    failure(store.events.append("exec:ended", [stdout("2")])),
    // A new log whose creation is undone with the call, and made again by the next.
    failure(store.events.append("exec:new", [stdout("1"), finished(), stdout("2")])),
    store.events.append("exec:new", [stdout("first")]),
    failure(store.jobs.insert(taken, sampleSpec())),
    failure(store.jobs.insert(timeless, sampleSpec())),
    store.events.append("exec:a", [stdout("2")]),
    store.events.read("exec:a", 1, { limit: 10, maxBytes: 1000 }),
  ]);
  expect(commits() - before).toBe(1);
  const codes = [results[1], results[2], results[4], results[5]].map((error) => error.code);
  expect(codes).toEqual([
    "failed_precondition",
    "failed_precondition",
    "already_exists",
    "invalid_argument",
  ]);
  expect(results[7]).toEqual([...results[0], ...results[6]]);
  expect(await store.jobs.get(timeless.id)).toBeNull();
  expect(await store.jobs.spec(timeless.id)).toBeNull();
  expect(await store.jobs.queuedCount()).toBe(1);
  expect(await allLines(store.events, "exec:new")).toEqual([...results[3]]);
  expect(await allLines(store.events, "exec:ended")).toHaveLength(2);
  await store.close();
});
