import { expect, test } from "bun:test";
import {
  TAIL_BYTES_MAX,
  TAIL_LINES_MAX,
  TAILS_BYTES_MAX,
  type TailBudget,
  Topic,
} from "../../src/record/feed-topic.ts";

const ALL = { limit: 10_000, maxBytes: 100 * TAIL_BYTES_MAX };

function lines(from: number, to: number, bytes = 10) {
  return Array.from({ length: to - from + 1 }, (_, index) => ({
    seq: from + index,
    line: "x".repeat(bytes),
  }));
}

function seqs(topic: Topic, from: number, bounds = ALL): readonly number[] | null {
  return topic.read(from, bounds)?.map(({ seq }) => seq) ?? null;
}

test("read() gives what the tail has, nothing ahead of it, and null where only the store knows", () => {
  const topic = new Topic({ usedBytes: 0 });
  expect(seqs(topic, 1)).toBeNull();
  topic.push(lines(3, 5));
  expect(seqs(topic, 2)).toBeNull();
  expect(seqs(topic, 3)).toEqual([3, 4, 5]);
  expect(seqs(topic, 5)).toEqual([5]);
  expect(seqs(topic, 6)).toEqual([]);
  expect(seqs(topic, 9)).toEqual([]);
  expect(seqs(topic, 3, { limit: 2, maxBytes: 1000 })).toEqual([3, 4]);
  expect(seqs(topic, 3, { limit: 9, maxBytes: 25 })).toEqual([3, 4]);
  expect(seqs(topic, 3, { limit: 9, maxBytes: 1 })).toEqual([3]);
  topic.push(lines(6, 6));
  expect(seqs(topic, 4)).toEqual([4, 5, 6]);
});

test("push() with a gap forgets the old tail, advance() forgets all of it", () => {
  const topic = new Topic({ usedBytes: 0 });
  topic.push(lines(1, 3));
  topic.push(lines(7, 8));
  expect(seqs(topic, 3)).toBeNull();
  expect(seqs(topic, 7)).toEqual([7, 8]);
  topic.advance();
  expect(seqs(topic, 7)).toBeNull();
  expect(seqs(topic, 9)).toBeNull();
});

test("push() of the terminal event leaves the end to the store", () => {
  const topic = new Topic({ usedBytes: 0 });
  topic.push([{ seq: 1, line: '{"seq":1,"at":"2026","kind":"finished","data":{}}' }]);
  expect(seqs(topic, 1)).toEqual([1]);
  expect(seqs(topic, 2)).toBeNull();
});

test("the tail keeps so many lines and so many bytes", () => {
  const budget: TailBudget = { usedBytes: 0 };
  const topic = new Topic(budget);
  topic.push(lines(1, TAIL_LINES_MAX + 10));
  expect(seqs(topic, 10)).toBeNull();
  expect(seqs(topic, 11)).toHaveLength(TAIL_LINES_MAX);
  expect(budget.usedBytes).toBe(TAIL_LINES_MAX * 10);
  topic.push(lines(TAIL_LINES_MAX + 11, TAIL_LINES_MAX + 20, TAIL_BYTES_MAX / 4));
  expect(budget.usedBytes).toBeLessThanOrEqual(TAIL_BYTES_MAX);
  expect(seqs(topic, TAIL_LINES_MAX + 17)).toHaveLength(4);
  expect(seqs(topic, TAIL_LINES_MAX + 16)).toBeNull();
  topic.drop();
  expect(budget.usedBytes).toBe(0);
});

test("a line that is larger than the tail is left to the store", () => {
  const budget: TailBudget = { usedBytes: 0 };
  const topic = new Topic(budget);
  topic.push(lines(1, 1, TAIL_BYTES_MAX + 1));
  expect(seqs(topic, 1)).toBeNull();
  expect(seqs(topic, 2)).toBeNull();
  expect(budget.usedBytes).toBe(0);
});

test("all tails together keep so many bytes", () => {
  const budget: TailBudget = { usedBytes: 0 };
  const count = TAILS_BYTES_MAX / TAIL_BYTES_MAX + 5;
  const topics = Array.from({ length: count }, () => new Topic(budget));
  for (const topic of topics) topic.push(lines(1, 4, TAIL_BYTES_MAX / 4));
  expect(budget.usedBytes).toBe(TAILS_BYTES_MAX);
  expect(topics.filter((topic) => seqs(topic, 1) === null)).toHaveLength(5);
  for (const topic of topics) topic.drop();
  expect(budget.usedBytes).toBe(0);
});

test("changed() resolves at a push, an advance, an abort, and at once when it already changed", async () => {
  const topic = new Topic({ usedBytes: 0 });
  const { signal } = new AbortController();
  const seen = topic.version;
  const waits = [topic.changed(seen, signal), topic.changed(seen, signal)];
  topic.push(lines(1, 1));
  await Promise.all(waits);
  await topic.changed(seen, signal);
  const advanced = topic.changed(topic.version, signal);
  topic.advance();
  await advanced;
  const stop = new AbortController();
  const aborted = topic.changed(topic.version, stop.signal);
  stop.abort();
  await aborted;
  await topic.changed(topic.version, stop.signal);
});
