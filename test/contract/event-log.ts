// What every EventLog must do. Run by event-log.test.ts against each store.

import { describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { toHex } from "../../src/core/chain.ts";
import type { Subject } from "../../src/core/event.ts";
import type { EventLine, TimedDraft } from "../../src/store/contract.ts";
import {
  allLines,
  failure,
  finished,
  NOON,
  sampleJob,
  sampleSpec,
  stdout,
} from "../store/samples.ts";
import type { StoreKind } from "./store-harness.ts";

const A: Subject = "exec:a";
const B: Subject = "exec:b";
const ALL = { limit: 1000, maxBytes: 1_000_000 };

/** Registers the suite for one kind of store. */
export function eventLogContract(kind: StoreKind): void {
  describe(`EventLog of ${kind.name}`, () => {
    describeAppend(kind);
    describeRead(kind);
    describeEnd(kind);
    describeChain(kind);
  });
}

function describeAppend({ open }: StoreKind): void {
  test("append() numbers events from 1 and returns the lines that read() gives", async () => {
    await using store = await open();
    const first = await store.events.append(A, [stdout("one"), stdout("two", NOON + 1)]);
    const second = await store.events.append(A, [
      { at: NOON + 2, draft: { kind: "stderr", data: "x" } },
    ]);
    expect([...first, ...second].map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect(await store.events.read(A, 1, ALL)).toEqual([...first, ...second]);
    const events = [...first, ...second].map(({ line }) => JSON.parse(line));
    expect(events.map(({ seq, at, kind, data }) => [seq, at, kind, data])).toEqual([
      [1, "2026-01-01T00:00:00.000Z", "stdout", "one"],
      [2, "2026-01-01T00:00:00.001Z", "stdout", "two"],
      [3, "2026-01-01T00:00:00.002Z", "stderr", "x"],
    ]);
  });

  test("append() of nothing makes no log", async () => {
    await using store = await open();
    expect(await store.events.append(A, [])).toEqual([]);
    expect(await store.events.head(A)).toBeNull();
    expect(await store.events.read(A, 1, ALL)).toEqual([]);
  });

  test("append() keeps hostile text to the byte", async () => {
    await using store = await open();
    const texts = [
      "\0",
      "a\0b",
      "\ud800 alone",
      '"}\n{"kind":"seal"',
      '","hash":"',
      "\u2028\u2029\r\n",
      "\ufeff",
      "🦊".repeat(100),
      "",
      "'); DROP TABLE events; --",
      "x".repeat(65_536),
    ];
    const lines = await store.events.append(
      A,
      texts.map((text) => stdout(text)),
    );
    const kept = await store.events.read(A, 1, ALL);
    expect(kept).toEqual([...lines]);
    expect(kept.map(({ line }) => JSON.parse(line).data)).toEqual(texts);
    expect(kept.some(({ line }) => line.includes("\n"))).toBe(false);
  });

  test("append() marks bytes that are no text", async () => {
    await using store = await open();
    const draft = { kind: "stdout", data: "/w==", encoding: "base64" } as const;
    const [line] = await store.events.append(A, [{ at: NOON, draft }]);
    expect(JSON.parse(line?.line ?? "")).toMatchObject({ data: "/w==", encoding: "base64" });
  });

  test("append() of bytes makes the events of their text, or of base64", async () => {
    await using store = await open();
    const rows = [
      Buffer.from("\ufeffa\0€"),
      Buffer.from([0xff, 0x00]),
      Buffer.from("🦊".repeat(16_384)),
      Buffer.alloc(65_536, 0x80),
      Buffer.alloc(0),
    ];
    const text = (row: Buffer) => ({ kind: "stdout", data: row.toString() }) as const;
    const base64 = (row: Buffer) => ({
      ...({ kind: "stdout", encoding: "base64" } as const),
      data: row.toString("base64"),
    });
    const drafts = rows.map((row, index) => (index % 2 === 0 ? text(row) : base64(row)));
    await store.events.append(
      A,
      drafts.map((draft) => ({ at: NOON, draft })),
    );
    // Together, and alone, as small and large ones take different ways; as parts of buffers too.
    const given = (row: Buffer, pad: number): TimedDraft => {
      const buffer = new Uint8Array(row.length + pad);
      buffer.set(row, pad);
      return { at: NOON, draft: { kind: "stdout", bytes: buffer.subarray(pad) } };
    };
    await store.events.append(
      B,
      rows.map((row) => given(row, 0)),
    );
    for (const row of rows) await store.events.append(B, [given(row, 3)]);
    const bodies = (lines: readonly EventLine[]) =>
      lines.map(({ line }) => {
        const { kind, data, encoding } = JSON.parse(line);
        return { kind, data, encoding };
      });
    const wanted = bodies(await allLines(store.events, A));
    expect(wanted).toHaveLength(rows.length);
    expect(bodies(await allLines(store.events, B))).toEqual([...wanted, ...wanted]);
  });

  test("append() that is silent gives no line back, and keeps them all", async () => {
    await using store = await open();
    expect(await store.events.append(A, [stdout("1")], { isSilent: true })).toEqual([]);
    const [second] = await store.events.append(A, [stdout("2")]);
    const lines = await allLines(store.events, A);
    expect(lines.map(({ seq }) => seq)).toEqual([1, 2]);
    expect(lines.at(-1)).toEqual(second as EventLine);
    const late = failure(store.events.append(A, [stdout("x", -1)], { isSilent: true }));
    expect((await late).code).toBe("invalid_argument");
  });

  test("append() calls that come together keep their order and leave no gap", async () => {
    await using store = await open();
    const texts = Array.from({ length: 24 }, (_, index) => `${index}`);
    const results = await Promise.all(
      texts.map((text, index) => store.events.append(index % 2 ? A : B, [stdout(text)])),
    );
    for (const subject of [A, B]) {
      const lines = await allLines(store.events, subject);
      expect(lines.map(({ seq }) => seq)).toEqual(Array.from({ length: 12 }, (_, i) => i + 1));
      const wanted = texts.filter((_, index) => (index % 2 ? A : B) === subject);
      expect(lines.map(({ line }) => JSON.parse(line).data)).toEqual(wanted);
      const acknowledged = results.filter((_, index) => (index % 2 ? A : B) === subject).flat();
      expect(lines).toEqual(acknowledged);
    }
  });

  test("append() that is refused keeps nothing, and its neighbours stand", async () => {
    await using store = await open();
    const refused = [
      [stdout("ok"), stdout("x", Number.NaN)],
      [stdout("ok"), stdout("x", -1)],
      [stdout("ok"), stdout("x", 8.7e15)],
      [stdout("ok"), stdout("\u0001".repeat(200_000))],
      Array.from({ length: 5000 }, () => stdout("")),
    ];
    const calls = refused.flatMap((drafts) => [
      store.events.append(A, [stdout("before")]),
      failure(store.events.append(A, drafts)).then(({ code }) => code),
    ]);
    const results = await Promise.all(calls);
    expect(results.filter((result) => typeof result === "string")).toEqual(
      refused.map(() => "invalid_argument"),
    );
    const lines = await allLines(store.events, A);
    expect(lines.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
    expect(lines.every(({ line }) => JSON.parse(line).data === "before")).toBe(true);
  });
}

function describeRead({ open }: StoreKind): void {
  test("read() starts anywhere and stops at the limit", async () => {
    await using store = await open();
    await store.events.append(
      A,
      ["1", "2", "3", "4", "5"].map((text) => stdout(text)),
    );
    const seqs = async (from: number, limit: number) => {
      const page = await store.events.read(A, from, { limit, maxBytes: 1_000_000 });
      return page.map(({ seq }) => seq);
    };
    expect(await seqs(1, 2)).toEqual([1, 2]);
    expect(await seqs(3, 2)).toEqual([3, 4]);
    expect(await seqs(5, 2)).toEqual([5]);
    expect(await seqs(6, 2)).toEqual([]);
    expect(await seqs(Number.MAX_SAFE_INTEGER, 2)).toEqual([]);
    expect(await seqs(2, 0)).toEqual([2]);
  });

  test("read() stops at maxBytes but gives one line at least", async () => {
    await using store = await open();
    await store.events.append(
      A,
      Array.from({ length: 10 }, () => stdout("x".repeat(1000))),
    );
    const count = async (maxBytes: number) =>
      (await store.events.read(A, 1, { limit: 100, maxBytes })).length;
    expect(await count(0)).toBe(1);
    expect(await count(10)).toBe(1);
    expect(await count(3500)).toBe(3);
    expect(await count(1_000_000)).toBe(10);
  });

  test("read() refuses a start that is no sequence number", async () => {
    await using store = await open();
    await store.events.append(A, [stdout("1")]);
    for (const fromSeq of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53]) {
      const error = await failure(store.events.read(A, fromSeq, ALL));
      expect([error.code, error.field]).toEqual(["invalid_argument", "from_seq"]);
    }
  });

  test("read() and head() know nothing of other logs", async () => {
    await using store = await open();
    await store.events.append(A, [stdout("1")]);
    expect(await store.events.read(B, 1, ALL)).toEqual([]);
    expect(await store.events.head(B)).toBeNull();
    expect(await store.events.head("job:a")).toBeNull();
  });
}

function describeEnd({ open }: StoreKind): void {
  test("append() ends the log with finished and refuses everything after it", async () => {
    await using store = await open();
    await store.events.append(A, [stdout("1")]);
    expect((await store.events.head(A))?.complete).toBe(false);
    await store.events.append(A, [stdout("2"), finished()]);
    expect(await store.events.head(A)).toMatchObject({ count: 3, complete: true });
    for (const drafts of [[stdout("late")], [finished()]]) {
      const error = await failure(store.events.append(A, drafts));
      expect([error.code, error.reason]).toEqual(["failed_precondition", "LOG_ENDED"]);
    }
    expect(await allLines(store.events, A)).toHaveLength(3);
  });

  test("append() refuses finished in the middle and keeps nothing of the call", async () => {
    await using store = await open();
    await store.events.append(A, [stdout("1")]);
    const error = await failure(store.events.append(A, [stdout("2"), finished(), stdout("3")]));
    expect(error.code).toBe("failed_precondition");
    expect(await store.events.head(A)).toMatchObject({ count: 1, complete: false });
    await store.events.append(A, [stdout("2")]);
    expect(await allLines(store.events, A)).toHaveLength(2);
  });

  test("append() does not end the log of a job, which finish() does", async () => {
    await using store = await open();
    const job = sampleJob();
    await store.jobs.insert(job, sampleSpec());
    const error = await failure(store.events.append(`job:${job.id}`, [finished()]));
    expect([error.code, error.reason]).toEqual(["failed_precondition", "FINISH_REQUIRED"]);
    expect(await store.events.head(`job:${job.id}`)).toMatchObject({ count: 1, complete: false });
  });
}

function describeChain({ open }: StoreKind): void {
  test("lines are chained by SHA-256 from the subject on", async () => {
    await using store = await open();
    for (const subject of [A, B]) {
      await store.events.append(subject, [stdout("1"), stdout("2")]);
      await store.events.append(subject, [finished()]);
      let previous = createHash("sha256").update(`cprg:v1:${subject}`).digest();
      for (const { line } of await allLines(store.events, subject)) {
        const cut = line.lastIndexOf(',"hash":"');
        const body = `${line.slice(0, cut)}}`;
        previous = createHash("sha256").update(previous).update(body).digest();
        expect(line).toBe(`${line.slice(0, cut)},"hash":"${previous.toString("hex")}"}`);
      }
      const head = await store.events.head(subject);
      expect(toHex(head?.hash ?? new Uint8Array())).toBe(previous.toString("hex"));
      expect(head?.previous).toBeNull();
    }
    const [a] = await store.events.read(A, 1, ALL);
    const [b] = await store.events.read(B, 1, ALL);
    expect(a?.line).not.toBe(b?.line);
  });
}
