import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { eventStream, SSE_COMMENT_MS, wantsEvents } from "../../../src/http/sse.ts";

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

const line = (seq: number, kind: string): { seq: number; line: string } => ({
  seq,
  line: `{"seq":${seq},"at":"2026-01-01T00:00:00.000Z","kind":"${kind}","data":"a\\nb","hash":"0"}`,
});

test("each line is one event with its seq and kind, after the first one", async () => {
  async function* pages() {
    yield [line(1, "stdout"), line(2, "stderr")];
    yield [line(3, "finished")];
  }
  let text = "";
  for await (const piece of eventStream(pages(), { event: "exec", data: { id: 1 } })) text += piece;
  expect(text.split("\n\n")).toEqual([
    'event: exec\ndata: {"id":1}',
    `id: 1\nevent: stdout\ndata: ${line(1, "stdout").line}`,
    `id: 2\nevent: stderr\ndata: ${line(2, "stderr").line}`,
    `id: 3\nevent: finished\ndata: ${line(3, "finished").line}`,
    "",
  ]);
});

test("silence is broken by a comment, and whoever leaves ends the reading", async () => {
  let isEnded = false;
  const held = Promise.withResolvers<void>();
  async function* silent() {
    try {
      await held.promise;
      yield [line(1, "stdout")];
    } finally {
      isEnded = true;
    }
  }
  const events = eventStream(silent(), { event: "exec", data: {} });
  await events.next();
  for (let round = 0; round < 2; round += 1) {
    const next = events.next();
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    jest.advanceTimersByTime(SSE_COMMENT_MS);
    expect((await next).value).toBe(": \n\n");
  }
  held.resolve();
  expect((await events.next()).value).toContain("id: 1\n");
  await events.return(undefined);
  expect(isEnded).toBe(true);
});

test.each([
  ["text/event-stream", true],
  ["application/json, text/event-stream", true],
  ["*/*", false],
  [undefined, false],
])("Accept %p asks for events: %p", (accept, isWanted) => {
  expect(wantsEvents(accept)).toBe(isWanted);
});
