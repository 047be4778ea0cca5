import { describe, expect, test } from "bun:test";
import { NoticeQueue, QUEUED_BYTES_MAX } from "../../../src/sandbox/notice-queue.ts";

const usage = (cpuMs: number) => ({ type: "usage", cpuMs, memoryBytes: null, pids: null }) as const;
const isSettled = async (promise: Promise<unknown>): Promise<boolean> => {
  let isDone = false;
  void promise.then(() => {
    isDone = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  return isDone;
};

describe("NoticeQueue", () => {
  test("keeps the order and ends", async () => {
    const queue = new NoticeQueue();
    await queue.output("stdout", Buffer.from("a"));
    queue.push(usage(1));
    await queue.output("stderr", Buffer.from("b"));
    queue.end();
    const types: string[] = [];
    for await (const notice of queue) types.push(notice.type);
    expect(types).toEqual(["output", "usage", "output"]);
  });

  test("output waits for the reader beyond a bound, of bytes or of pieces", async () => {
    for (const piece of [new Uint8Array(QUEUED_BYTES_MAX / 4), new Uint8Array(1)]) {
      const queue = new NoticeQueue();
      let pushed = 0;
      let blocked: Promise<void> | null = null;
      while (blocked === null && pushed < 1000) {
        pushed += 1;
        const output = queue.output("stdout", piece);
        if (!(await isSettled(output))) blocked = output;
      }
      expect(pushed).toBeLessThanOrEqual(64);
      const reader = queue[Symbol.asyncIterator]();
      await reader.next();
      expect(await isSettled(blocked ?? Promise.resolve())).toBe(true);
    }
  });

  test("usage that nobody has read is replaced by the next", async () => {
    const queue = new NoticeQueue();
    for (let count = 0; count < 1000; count += 1) queue.push(usage(count));
    queue.end();
    const seen: unknown[] = [];
    for await (const notice of queue) seen.push(notice);
    expect(seen).toEqual([usage(999)]);
  });

  test("has one reader", async () => {
    const queue = new NoticeQueue();
    queue.end();
    for await (const _ of queue);
    expect(await queue[Symbol.asyncIterator]().next().catch(String)).toContain("twice");
  });

  test("discard() lets go of writer and reader", async () => {
    const queue = new NoticeQueue();
    const blocked = queue.output("stdout", new Uint8Array(QUEUED_BYTES_MAX));
    expect(await isSettled(blocked)).toBe(false);
    queue.discard();
    await blocked;
    await queue.output("stdout", new Uint8Array(1));
    expect((await queue[Symbol.asyncIterator]().next()).done).toBe(true);
  });
});
