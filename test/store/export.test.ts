import { expect, test } from "bun:test";
import { verifyExport } from "../../src/core/verify.ts";
import { exportLog } from "../../src/record/export.ts";
import type { EventLog } from "../../src/store/contract.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { openStore } from "../../src/store/open.ts";
import { ephemeralSigningKey } from "../../src/store/signing-key.ts";
import {
  allLines,
  failure,
  finished,
  NOON,
  sampleJob,
  sampleOutcome,
  sampleSpec,
  stdout,
  TempDir,
} from "./samples.ts";

const key = ephemeralSigningKey();
const clock = { now: () => NOON, monotonicMs: () => 0 };

async function collect(source: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

test("exportLog() gives the stored lines to the byte, then a seal, over many pages", async () => {
  using folder = new TempDir();
  const store = await openStore({ path: folder.join("cprg.db") });
  for (let index = 0; index < 30; index += 1) {
    await store.events.append(
      "exec:a",
      Array.from({ length: 100 }, (_, row) => stdout(`${index}/${row} ü\0`)),
    );
  }
  await store.events.append("exec:a", [finished()]);
  const chunks: Uint8Array[] = [];
  const source = exportLog({ store, key, subject: "exec:a", clock });
  for await (const chunk of source) chunks.push(chunk);
  expect(chunks.length).toBeGreaterThan(3);
  const text = Buffer.concat(chunks).toString();
  const lines = (await allLines(store.events, "exec:a")).map(({ line }) => `${line}\n`).join("");
  expect(text.startsWith(lines)).toBe(true);
  expect(JSON.parse(text.slice(lines.length))).toEqual({
    kind: "seal",
    subject: "exec:a",
    count: 3001,
    head: JSON.parse(lines.trim().split("\n").at(-1) ?? "").hash,
    previous: "0".repeat(64),
    complete: true,
    at: "2026-01-01T00:00:00.000Z",
    key: key.fingerprint,
    signature: expect.stringMatching(/^[0-9a-f]{128}$/),
  });
  const verified = await verifyExport(Buffer.from(text), key);
  expect(verified).toMatchObject({ ok: true, subject: "exec:a", count: 3001, complete: true });
  await store.close();
});

test("exportLog() seals a log that has not ended as incomplete", async () => {
  const store = memoryStore();
  await store.events.append("exec:a", [stdout("1")]);
  const verified = await verifyExport(exportLog({ store, key, subject: "exec:a" }), key);
  expect(verified).toMatchObject({ ok: true, count: 1, complete: false });
});

test("exportLog() gives the log as it stands when it begins", async () => {
  const store = memoryStore();
  await store.events.append(
    "exec:a",
    Array.from({ length: 2000 }, () => stdout("x")),
  );
  const source = exportLog({ store, key, subject: "exec:a" });
  const parts: Uint8Array[] = [];
  for await (const chunk of source) {
    parts.push(chunk);
    if (parts.length === 1) await store.events.append("exec:a", [stdout("late"), finished()]);
  }
  const verified = await verifyExport(Buffer.concat(parts), key);
  expect(verified).toMatchObject({ ok: true, count: 2000, complete: false });
});

test("exportLog() seals a job with the head of the tenant's previous one", async () => {
  const store = memoryStore();
  const heads: string[] = [];
  for (let index = 0; index < 2; index += 1) {
    const { id } = sampleJob();
    await store.jobs.insert(sampleJob({ id }), sampleSpec());
    await store.jobs.finish(id, null, sampleOutcome({ reason: "user" }), NOON);
    const verified = await verifyExport(exportLog({ store, key, subject: `job:${id}` }), key);
    expect(verified).toMatchObject({
      ok: true,
      complete: true,
      previous: heads.at(-1) ?? "0".repeat(64),
    });
    if (verified.ok) heads.push(verified.head);
  }
  expect(heads).toHaveLength(2);
});

test("exportLog() refuses a log that is not there", async () => {
  const source = exportLog({ store: memoryStore(), key, subject: "exec:a" });
  expect((await failure(collect(source))).code).toBe("not_found");
});

test("exportLog() of a log that is removed meanwhile has no seal", async () => {
  const { events } = memoryStore();
  await events.append(
    "exec:a",
    Array.from({ length: 2000 }, () => stdout("x")),
  );
  let reads = 0;
  const removing: EventLog = {
    ...events,
    read: async (...args) => {
      reads += 1;
      return reads > 1 ? [] : events.read(...args);
    },
  };
  const source = exportLog({ store: { events: removing }, key, subject: "exec:a" });
  const first = await source.next();
  expect(first.done).toBe(false);
  expect((await failure(source.next())).code).toBe("aborted");
  const verified = await verifyExport(first.value ?? new Uint8Array(), key);
  expect(verified).toMatchObject({ ok: false, problem: expect.stringContaining("no seal") });
});
