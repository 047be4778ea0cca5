import { expect, test } from "bun:test";
import type { Subject } from "../../src/core/event.ts";
import { Feed, SUBSCRIBERS_MAX } from "../../src/record/feed.ts";
import { TAIL_BYTES_MAX, TAILS_BYTES_MAX } from "../../src/record/feed-topic.ts";
import { LOG_PAGE } from "../../src/record/page-reads.ts";
import type { EventLine, EventLog } from "../../src/store/contract.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import {
  failure,
  finished,
  NOON,
  sampleJob,
  sampleOutcome,
  sampleSpec,
  stdout,
} from "./samples.ts";

const A: Subject = "exec:a";

/** A log in memory that counts how often it is read. */
function countedLog(): EventLog & { reads: number } {
  const { events } = memoryStore();
  const log = {
    ...events,
    reads: 0,
    read: (...args: Parameters<EventLog["read"]>) => {
      log.reads += 1;
      return events.read(...args);
    },
  };
  return log;
}

/** Reads until the feed ends and tells when so many lines came. */
class Reader {
  readonly lines: EventLine[] = [];
  readonly stop = new AbortController();
  readonly done: Promise<void>;
  #wanted = 0;
  #reached = Promise.withResolvers<void>();

  constructor(feed: Feed, fromSeq = 1, subject = A) {
    this.done = this.#run(feed, fromSeq, subject);
  }

  async has(count: number): Promise<void> {
    this.#wanted = count;
    this.#reached = Promise.withResolvers<void>();
    if (this.lines.length < count) await this.#reached.promise;
  }

  get seqs(): number[] {
    return this.lines.map(({ seq }) => seq);
  }

  async #run(feed: Feed, fromSeq: number, subject: Subject): Promise<void> {
    for await (const page of feed.subscribe(subject, { fromSeq, signal: this.stop.signal })) {
      expect(page.length).toBeGreaterThan(0);
      expect(page.length).toBeLessThanOrEqual(LOG_PAGE.limit);
      this.lines.push(...page);
      if (this.lines.length >= this.#wanted) this.#reached.resolve();
    }
  }
}

/** Lets everything run that waits for nothing but its turn. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
}

test("subscribe() gives history, then what comes, and ends after finished", async () => {
  const log = countedLog();
  const feed = new Feed(log);
  await feed.append(A, [stdout("1"), stdout("2")]);
  const reader = new Reader(feed);
  await reader.has(2);
  await feed.append(A, [stdout("3")]);
  await reader.has(3);
  await feed.append(A, [stdout("4"), finished()]);
  await reader.done;
  expect(reader.lines).toEqual([...(await log.read(A, 1, { limit: 100, maxBytes: 1e6 }))]);
  expect(reader.seqs).toEqual([1, 2, 3, 4, 5]);
  expect(feed.subscribers).toBe(0);
});

test("subscribe() waits for a log that does not exist yet", async () => {
  const feed = new Feed(countedLog());
  const reader = new Reader(feed);
  await settle();
  await feed.append(A, [finished()]);
  await reader.done;
  expect(reader.seqs).toEqual([1]);
});

test("subscribe() starts at fromSeq, also beyond what is there", async () => {
  const feed = new Feed(countedLog());
  await feed.append(A, [stdout("1"), stdout("2")]);
  const readers = [2, 3, 5, 7].map((fromSeq) => new Reader(feed, fromSeq));
  await settle();
  for (const text of ["3", "4", "5"]) await feed.append(A, [stdout(text)]);
  await feed.append(A, [finished()]);
  await Promise.all(readers.slice(0, 3).map(({ done }) => done));
  expect(readers.map(({ seqs }) => seqs)).toEqual([[2, 3, 4, 5, 6], [3, 4, 5, 6], [5, 6], []]);
  // Nothing can follow finished, so a reader beyond it has seen everything.
  await readers[3]?.done;
  const late = [6, 7, 1000].map((fromSeq) => new Reader(feed, fromSeq));
  await Promise.all(late.map(({ done }) => done));
  expect(late.map(({ seqs }) => seqs)).toEqual([[6], [], []]);
});

test("subscribe() refuses a start that is no sequence number", () => {
  const feed = new Feed(countedLog());
  for (const fromSeq of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    const { signal } = new AbortController();
    expect(() => feed.subscribe(A, { fromSeq, signal })).toThrow("Cannot read from seq");
  }
  expect(feed.subscribers).toBe(0);
});

test("an abort ends a reader that waits, one that reads, and one that has not begun", async () => {
  const feed = new Feed(countedLog());
  await feed.append(A, [stdout("1")]);
  const waiting = new Reader(feed);
  await waiting.has(1);
  await settle();
  expect(feed.subscribers).toBe(1);
  const reading = new Reader(feed);
  reading.stop.abort();
  waiting.stop.abort();
  await Promise.all([waiting.done, reading.done]);
  const aborted = feed.subscribe(A, { fromSeq: 1, signal: AbortSignal.abort() });
  for await (const _ of aborted) throw new Error("it gave a page");
  expect(reading.seqs).toEqual([]);
  expect(feed.subscribers).toBe(0);
});

test("a reader that stops in the middle of a page frees its place", async () => {
  const feed = new Feed(countedLog());
  await feed.append(A, [stdout("1")]);
  const { signal } = new AbortController();
  for await (const _ of feed.subscribe(A, { fromSeq: 1, signal })) break;
  expect(feed.subscribers).toBe(0);
});

test("a commit between a reader's look and its wait is not lost", async () => {
  const { events } = memoryStore();
  const gates: PromiseWithResolvers<void>[] = [];
  const slow: EventLog = {
    ...events,
    read: async (...args) => {
      const page = await events.read(...args);
      // Only the first is slow: a second look finds what came meanwhile.
      if (gates.length > 0) return page;
      const gate = Promise.withResolvers<void>();
      gates.push(gate);
      await gate.promise;
      return page;
    },
  };
  const feed = new Feed(slow);
  const reader = new Reader(feed);
  await settle();
  // The reader has looked, and saw nothing; its answer is still on the way.
  expect(gates).toHaveLength(1);
  await feed.append(A, [stdout("1"), finished()]);
  gates[0]?.resolve();
  await reader.done;
  expect(reader.seqs).toEqual([1, 2]);
});

test("a commit between a reader's look and its wait is not lost when it is made elsewhere", async () => {
  const { events } = memoryStore();
  const gates: PromiseWithResolvers<void>[] = [];
  const slow: EventLog = {
    ...events,
    head: async (subject) => {
      const head = await events.head(subject);
      const gate = Promise.withResolvers<void>();
      gates.push(gate);
      await gate.promise;
      return head;
    },
  };
  const feed = new Feed(slow);
  const reader = new Reader(feed);
  await settle();
  expect(gates).toHaveLength(1);
  await events.append(A, [stdout("1"), finished()]);
  feed.advanced(A);
  gates[0]?.resolve();
  await reader.done;
  expect(reader.seqs).toEqual([1, 2]);
});

test("advanced() brings readers what JobStore.finish() committed", async () => {
  const { events, jobs } = memoryStore();
  const feed = new Feed(events);
  const { id } = sampleJob();
  await jobs.insert(sampleJob({ id }), sampleSpec());
  const job = await jobs.start(id, "here", NOON);
  const reader = new Reader(feed, 1, `job:${id}`);
  await feed.append(`job:${id}`, [stdout("1")]);
  await reader.has(2);
  await settle();
  await jobs.finish(id, job?.owner ?? null, sampleOutcome(), NOON);
  feed.advanced(`job:${id}`);
  await reader.done;
  expect(reader.seqs).toEqual([1, 2, 3]);
});

test("lines that were appended past the feed are neither lost nor given twice", async () => {
  const log = countedLog();
  const feed = new Feed(log);
  const reader = new Reader(feed);
  await feed.append(A, [stdout("1")]);
  await reader.has(1);
  await log.append(A, [stdout("2")]);
  await feed.append(A, [stdout("3")]);
  await reader.has(3);
  await log.append(A, [stdout("4")]);
  feed.advanced(A);
  await feed.append(A, [stdout("5"), finished()]);
  await reader.done;
  expect(reader.seqs).toEqual([1, 2, 3, 4, 5, 6]);
});

test("readers that keep up are fed without reading the store, idle ones cost nothing", async () => {
  const log = countedLog();
  const feed = new Feed(log);
  const readers = Array.from({ length: 10 }, () => new Reader(feed));
  await feed.append(A, [stdout("0")]);
  await Promise.all(readers.map((reader) => reader.has(1)));
  await settle();
  const before = log.reads;
  for (let index = 1; index <= 200; index += 1) {
    await feed.append(A, [stdout(`${index}`)]);
    await Promise.all(readers.map((reader) => reader.has(index + 1)));
  }
  expect(log.reads).toBe(before);
  for (let index = 0; index < 50; index += 1) await feed.append("exec:b", [stdout("")]);
  await settle();
  expect(log.reads).toBe(before);
  await feed.append(A, [finished()]);
  await Promise.all(readers.map(({ done }) => done));
});

test("lines are asked for only when a reader waits for them or is close behind", async () => {
  const { events } = memoryStore();
  const silent: boolean[] = [];
  const feed = new Feed({
    ...events,
    append: (subject, drafts, options = {}) => {
      silent.push(options.isSilent ?? false);
      return events.append(subject, drafts, options);
    },
  });
  const append = async () => await feed.append(A, [stdout("x".repeat(TAIL_BYTES_MAX / 4))]);
  await append();
  expect(silent).toEqual([true]);
  const { signal } = new AbortController();
  const pages = feed.subscribe(A, { fromSeq: 1, signal })[Symbol.asyncIterator]();
  const seqs = async () => (await pages.next()).value?.map(({ seq }: EventLine) => seq);
  expect(await seqs()).toEqual([1]);
  const second = seqs();
  await settle();
  await append();
  expect(await second).toEqual([2]);
  // It reads no further: the tail moves on until it has passed the reader by.
  for (let count = 0; count < 6; count += 1) await append();
  expect(silent).toEqual([true, false, false, false, false, true, true, true]);
  const rest: number[] = [];
  while (rest.length < 6) rest.push(...(await seqs()));
  expect(rest).toEqual([3, 4, 5, 6, 7, 8]);
  const last = seqs();
  await settle();
  await append();
  expect(await last).toEqual([9]);
  expect(silent.at(-1)).toBe(false);
  await pages.return?.();
});

test("the tails of logs that nobody reads any more make room for others", async () => {
  const log = countedLog();
  const feed = new Feed(log);
  // Without room given back, less than one of these lines would fit in the end.
  const bytes = TAIL_BYTES_MAX / 8;
  const count = Math.ceil(TAILS_BYTES_MAX / bytes) + 1;
  for (let index = 0; index < count; index += 1) {
    const reader = new Reader(feed, 1, `exec:${index}`);
    await settle();
    await feed.append(`exec:${index}`, [stdout("x".repeat(bytes))]);
    await reader.has(1);
    reader.stop.abort();
    await reader.done;
  }
  const reader = new Reader(feed);
  await settle();
  const before = log.reads;
  await feed.append(A, [stdout("x".repeat(2 * bytes))]);
  await reader.has(1);
  await settle();
  expect(log.reads).toBe(before);
  await feed.append(A, [finished()]);
  await reader.done;
});

test("a store that fails ends the reader with its error", async () => {
  const log = countedLog();
  const feed = new Feed({
    ...log,
    read: () => Promise.reject(new Error("the disk is gone")),
  });
  const { signal } = new AbortController();
  const pages = feed.subscribe(A, { fromSeq: 1, signal })[Symbol.asyncIterator]();
  await expect(pages.next()).rejects.toThrow("the disk is gone");
  await settle();
  expect(feed.subscribers).toBe(0);
});

test("an append that fails wakes nobody and is reported", async () => {
  const log = countedLog();
  const feed = new Feed(log);
  await feed.append(A, [finished()]);
  expect((await failure(feed.append(A, [stdout("")]))).code).toBe("failed_precondition");
});

test("so many readers and no more", async () => {
  const feed = new Feed(countedLog());
  const stop = new AbortController();
  const options = { fromSeq: 1, signal: stop.signal };
  const first = feed.subscribe(A, options)[Symbol.asyncIterator]();
  const readers = Array.from({ length: SUBSCRIBERS_MAX - 1 }, (_, index) =>
    feed
      .subscribe(`exec:${index % 100}`, options)
      [Symbol.asyncIterator]()
      .next(),
  );
  // Asked for in time, begun too late.
  const late = feed.subscribe(A, options)[Symbol.asyncIterator]();
  const begun = first.next();
  expect(feed.subscribers).toBe(SUBSCRIBERS_MAX);
  expect(await failure(late.next())).toMatchObject({
    code: "resource_exhausted",
    reason: "TOO_MANY_READERS",
  });
  expect(() => feed.subscribe(A, options)).toThrow("too many readers");
  await settle();
  stop.abort();
  await Promise.all([begun, ...readers]);
  expect(feed.subscribers).toBe(0);
});
