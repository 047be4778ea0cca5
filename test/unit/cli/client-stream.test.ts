// Following a job over a WebSocket that breaks, repeats itself, or floods.

import { afterEach, describe, expect, test } from "bun:test";
import type { ServerWebSocket } from "bun";
import { parseServer, type ServerAccess } from "../../../src/cli/client.ts";
import {
  parseFrame,
  STREAM_ATTEMPTS_MAX,
  STREAM_QUEUE_CHARS_MAX,
  streamEvents,
} from "../../../src/cli/client-stream.ts";
import { CprgError } from "../../../src/core/errors.ts";

const stops: (() => unknown)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

type Opened = (socket: ServerWebSocket<{ from: number }>, from: number) => void;

/** A server with one job; `onOpen` plays the stream. */
function serve(
  onOpen: Opened,
  options: { onJob?: () => Response; onClose?: () => void } = {},
): ServerAccess {
  const { onJob = () => Response.json({}), onClose = () => undefined } = options;
  const server = Bun.serve<{ from: number }, never>({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request, self) {
      const url = new URL(request.url);
      if (!url.pathname.endsWith("/stream")) return onJob();
      const from = Number(url.searchParams.get("from_seq"));
      return self.upgrade(request, { data: { from } })
        ? undefined
        : new Response("", { status: 400 });
    },
    websocket: {
      backpressureLimit: 64 * 1024 * 1024,
      open: (socket) => onOpen(socket, socket.data.from),
      message: () => undefined,
      close: onClose,
    },
  });
  stops.push(() => server.stop(true));
  return { url: parseServer(`http://127.0.0.1:${server.port}`), key: "k" };
}

function line(seq: number, kind = "stdout", data = "x"): string {
  return JSON.stringify({ seq, at: "t", kind, data, hash: "h" });
}

async function follow(access: ServerAccess, each?: () => Promise<void>): Promise<number[]> {
  const seqs: number[] = [];
  for await (const event of streamEvents(access, { path: "/v1/jobs/j", fromSeq: 1 })) {
    seqs.push(event.seq);
    await each?.();
  }
  return seqs;
}

describe("streamEvents()", () => {
  test("yields every event once, in order, to the finished one", async () => {
    const access = serve((socket) => {
      socket.send(line(1));
      socket.send(`${line(2)}\n${line(3)}`);
      socket.send(line(4, "finished"));
    });
    expect(await follow(access)).toEqual([1, 2, 3, 4]);
  });

  test("takes up a broken connection behind its last event, without duplicates", async () => {
    const asked: number[] = [];
    const access = serve((socket, from) => {
      asked.push(from);
      socket.send(line(Math.max(1, from - 1)));
      socket.send(line(from));
      if (from >= 3) socket.send(line(from + 1, "finished"));
      socket.close();
    });
    expect(await follow(access)).toEqual([1, 2, 3, 4]);
    expect(asked).toEqual([1, 2, 3]);
  });

  test("hangs up on a flood that its reader cannot follow, and comes back for the rest", async () => {
    const total = 40;
    const data = "y".repeat(STREAM_QUEUE_CHARS_MAX / 8);
    let connections = 0;
    const closed = Promise.withResolvers<void>();
    const access = serve(
      (socket, from) => {
        connections += 1;
        for (let seq = from; seq < total; seq += 1) socket.send(line(seq, "stdout", data));
        socket.send(line(total, "finished"));
      },
      { onClose: closed.resolve },
    );
    // The reader takes one event and no more until the client has hung up.
    const seqs = await follow(access, async () => await closed.promise);
    expect(seqs).toEqual(Array.from({ length: total }, (_, index) => index + 1));
    expect(connections).toBeGreaterThan(1);
  });

  test("gives up when connections bring nothing", async () => {
    let connections = 0;
    const access = serve((socket) => {
      connections += 1;
      socket.close();
    });
    await expect(follow(access)).rejects.toMatchObject({ reason: "SERVER_UNREACHABLE" });
    expect(connections).toBe(STREAM_ATTEMPTS_MAX);
  });

  test("says what the server says of the job", async () => {
    const access = serve(() => undefined, {
      onJob: () => Response.json({ code: "not_found", detail: "no such job" }, { status: 404 }),
    });
    await expect(follow(access)).rejects.toMatchObject({
      code: "not_found",
      message: "no such job",
    });
  });

  test("ends when it is aborted", async () => {
    const controller = new AbortController();
    const access = serve((socket) => socket.send(line(1)));
    const seqs: number[] = [];
    const request = { path: "/v1/jobs/j", fromSeq: 1, signal: controller.signal };
    for await (const event of streamEvents(access, request)) {
      seqs.push(event.seq);
      controller.abort();
    }
    expect(seqs).toEqual([1]);
  });
});

test.each(["[]", "null", "1", '{"seq":1}', '{"seq":"1","kind":"x"}'])(
  "parseFrame() refuses %s",
  (text) => {
    expect(() => [...parseFrame(text)]).toThrow(CprgError as unknown as ErrorConstructor);
  },
);
