import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { NoticeQueue } from "../../../src/sandbox/notice-queue.ts";
import { OutputStream, QUIET_LOOK_MS, QUIET_LOOKS } from "../../../src/sandbox/output.ts";

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** A stream of a pipe that others may hold: bytes come when the event loop gets to them. */
function openPipe(isReadable?: () => boolean) {
  const waiting: ((read: { done: boolean; value?: Uint8Array<ArrayBuffer> }) => void)[] = [];
  const queue = new NoticeQueue();
  const seen = { ended: 0, cancelled: 0 };
  const stream = new OutputStream({
    channel: "stdout",
    reader: {
      read: () => new Promise((resolve) => waiting.push(resolve)),
      cancel: async () => {
        seen.cancelled += 1;
        waiting.shift()?.({ done: true });
      },
    },
    onEnd: () => {
      seen.ended += 1;
    },
    ...(isReadable === undefined ? {} : { isReadable }),
    limitBytes: 100,
    queue,
    onTruncated: () => undefined,
  });
  return { stream, seen, give: (text: string) => waiting.shift()?.(read(text)) };
}

function read(text: string) {
  return { done: false, value: new Uint8Array(Buffer.from(text)) };
}

/** Lets promises settle while the clock stands still. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

test("after the end, what is in the pipe is waited for however long the loop is starved", async () => {
  let isReadable = true;
  const { stream, seen, give } = openPipe(() => isReadable);
  stream.finishSoon();
  jest.advanceTimersByTime(QUIET_LOOK_MS * 100);
  expect(seen.cancelled).toBe(0);
  give("late");
  await settle();
  expect(stream.totalBytes).toBe(4);
  isReadable = false;
  jest.advanceTimersByTime(QUIET_LOOK_MS * (QUIET_LOOKS + 1));
  await settle();
  expect(seen).toEqual({ ended: 1, cancelled: 1 });
});

test("after the end, a writer that is silent is not awaited; one look is not silence", async () => {
  const { stream, seen, give } = openPipe();
  stream.finishSoon();
  stream.finishSoon();
  jest.advanceTimersByTime(QUIET_LOOK_MS);
  give("x");
  await settle();
  jest.advanceTimersByTime(QUIET_LOOK_MS * QUIET_LOOKS);
  expect(seen.cancelled).toBe(0);
  jest.advanceTimersByTime(QUIET_LOOK_MS);
  await settle();
  expect(seen).toEqual({ ended: 1, cancelled: 1 });
  expect(stream.totalBytes).toBe(1);
});

test("before the end, silence means nothing", async () => {
  const { seen } = openPipe();
  jest.advanceTimersByTime(QUIET_LOOK_MS * 1000);
  await settle();
  expect(seen).toEqual({ ended: 0, cancelled: 0 });
});
