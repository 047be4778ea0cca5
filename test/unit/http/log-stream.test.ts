import { describe, expect, test } from "bun:test";
import {
  LogStream,
  STREAM_MESSAGES_PER_MIN,
  type StreamSocket,
} from "../../../src/http/log-stream.ts";

/** A socket whose peer takes bytes when the test says so. */
class FakeSocket implements StreamSocket {
  readonly sent: string[] = [];
  end: unknown[] | null = null;
  buffered = 0;
  mostBuffered = 0;
  drops = false;

  send(text: string): number {
    if (this.drops) return 0;
    this.sent.push(text);
    this.buffered += text.length;
    this.mostBuffered = Math.max(this.mostBuffered, this.buffered);
    return -1;
  }

  getBufferedAmount(): number {
    return this.buffered;
  }

  close(code: number, reason: string): void {
    this.end ??= [code, reason];
  }

  terminate(): void {
    this.end ??= ["terminated"];
  }
}

const lines = Array.from({ length: 50 }, (_, index) => ({ line: `${index}`.padEnd(100, ".") }));

function stream(options: { stallMs?: number; fails?: boolean; stays?: boolean } = {}) {
  let read = 0;
  const failures: unknown[] = [];
  const made = new LogStream({
    bufferBytesMax: 1000,
    ...(options.stallMs === undefined ? {} : { stallMs: options.stallMs }),
    subscribe: async function* (signal) {
      for (const line of lines) {
        if (signal.aborted) return;
        read += 1;
        yield [line];
      }
      if (options.fails) throw new Error("store gone");
      if (options.stays && !signal.aborted) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      }
    },
    hasEnded: async () => options.stays !== true,
    onFailure: (error) => failures.push(error),
    onClosed: () => undefined,
  });
  return { stream: made, read: () => read, failures };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("LogStream", () => {
  test("messages are for nothing, and a flood of them ends the stream", async () => {
    const { stream: made } = stream({ stays: true });
    const socket = new FakeSocket();
    for (let count = 0; count < STREAM_MESSAGES_PER_MIN; count += 1) made.heard(socket);
    expect(socket.end).toBeNull();
    made.heard(socket);
    expect(socket.end).toEqual([1008, "a stream takes no messages"]);
    await made.gone;
    // One that goes on does not read either that it was told to stop.
    const later = new FakeSocket();
    made.heard(later);
    expect(later.end).toEqual(["terminated"]);
  });

  test("reads no further than its client takes, and closes when all is taken", async () => {
    const { stream: made, read } = stream();
    const socket = new FakeSocket();
    const done = made.opened(socket);
    await turn();
    const before = read();
    expect(before).toBeLessThan(20);
    await turn();
    expect(read()).toBe(before);
    while (socket.end === null) {
      socket.buffered = Math.max(0, socket.buffered - 300);
      made.drained();
      await turn();
    }
    await done;
    expect(socket.end).toEqual([1000, "finished"]);
    expect(socket.sent).toEqual(lines.map(({ line }) => line));
    expect(socket.buffered).toBe(0);
    expect(socket.mostBuffered).toBeLessThanOrEqual(1200);
  });

  test("cuts off a client that takes nothing", async () => {
    const { stream: made } = stream({ stallMs: 1 });
    const socket = new FakeSocket();
    await made.opened(socket);
    expect(socket.end).toEqual(["terminated"]);
    expect(socket.sent.length).toBeLessThan(lines.length);
  });

  test("bears with one that takes little without a drain being told", async () => {
    const { stream: made } = stream({ stallMs: 1 });
    const socket = new FakeSocket();
    socket.getBufferedAmount = () => {
      socket.buffered = Math.max(0, socket.buffered - 20);
      return socket.buffered;
    };
    await made.opened(socket);
    expect(socket.end).toEqual([1000, "finished"]);
  });

  test("cuts the connection rather than leave a gap", async () => {
    const { stream: made } = stream();
    const socket = new FakeSocket();
    socket.drops = true;
    await made.opened(socket);
    expect(socket.end).toEqual(["terminated"]);
  });

  test("says 1011 when the log cannot be read, and 1001 when it is stopped", async () => {
    const failing = stream({ fails: true });
    const socket = new FakeSocket();
    socket.getBufferedAmount = () => 0;
    await failing.stream.opened(socket);
    expect(socket.end).toEqual([1011, "the server failed"]);
    expect(failing.failures).toHaveLength(1);

    const stopped = stream({ stays: true });
    const other = new FakeSocket();
    other.getBufferedAmount = () => 0;
    const done = stopped.stream.opened(other);
    while (other.sent.length < lines.length) await turn();
    stopped.stream.closed();
    await done;
    expect(other.end).toEqual([1001, "stopped"]);
  });

  test("runOut() sends the rest of an ended job, and cuts off one that goes on", async () => {
    for (const [stays, code, count] of [
      [false, 1000, lines.length],
      [true, 1001, 10],
    ] as const) {
      const { stream: made } = stream({ stays });
      const socket = new FakeSocket();
      const pumped = made.opened(socket);
      const out = made.runOut();
      while (socket.end === null) {
        await turn();
        socket.buffered = 0;
        made.drained();
      }
      await pumped;
      expect(socket.end[0]).toBe(code);
      expect(socket.sent.length)[stays ? "toBeLessThan" : "toBe"](stays ? lines.length : count);
      made.closed();
      await out;
    }
  });
});
