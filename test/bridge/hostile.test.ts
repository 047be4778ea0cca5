// Frames that break a rule: answered, dropped and counted, or the end of the stream (PROTOCOL.md
// section 5). The process goes on.

import { describe, expect, test } from "bun:test";
import { Handlers } from "../../src/bridge/handlers.ts";
import {
  CREDIT_BYTES,
  DROPPED_FRAMES_MAX,
  EARLY_ANSWERS_MAX,
  ITEM_BYTES_MAX,
  OPEN_CALLS_MAX,
  REQUEST_BYTES_MAX,
  UNARY_BYTES_MAX,
} from "../../src/bridge/limits.ts";
import {
  CANCEL,
  CREDIT,
  EXEC_START,
  FS_STAT,
  FS_UPLOAD,
  FS_WRITE_FILE,
  HEARTBEAT_NOTICE,
} from "../../src/bridge/methods.ts";
import { type PeersOptions, type RawPeer, rawPeer } from "./peers.ts";

const NO_MESSAGE = new Uint8Array([0xff, 0xff]);

/** Serves one of each kind; `hang` never ends by itself. */
function served(): Handlers {
  const whenAborted = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  return new Handlers()
    .unary(FS_STAT, () => ({}))
    .unary(FS_WRITE_FILE, async (_, { signal }) => {
      await whenAborted(signal);
      return {};
    })
    .serverStream(EXEC_START, async function* (_, { signal }) {
      yield { seq: 1 };
      await whenAborted(signal);
    })
    .clientStream(FS_UPLOAD, async (items) => {
      let bytes = 0;
      for await (const { chunk } of items) bytes += chunk?.length ?? 0;
      return { bytes };
    });
}

function serving(options?: PeersOptions): RawPeer {
  return rawPeer(served(), options);
}

/** The mux still answers, in order: nothing else was sent before. */
async function expectAlive({ send, next }: RawPeer): Promise<void> {
  await send("request", { id: "alive", method: FS_STAT.name });
  expect(await next()).toMatchObject({ id: "alive", kind: "response" });
}

const chunk = (bytes: number): Uint8Array =>
  FS_UPLOAD.request.encode({ chunk: new Uint8Array(bytes) });

describe("dropped and counted", () => {
  const long = "x".repeat(129);
  test.each([
    ["a RESPONSE to nothing", "response", { id: "7" }],
    ["a RESPONSE to a notice that was not sent", "response", { id: "n-1" }],
    ["an item of no call", "request", { id: "7", payload: chunk(1) }],
    ["an ERROR to nothing", "error", { id: "7", error: "internal: x" }],
    ["a kind without meaning", "unknown", { id: "7", method: FS_STAT.name }],
    ["a REQUEST without id", "request", { method: FS_STAT.name }],
    ["a REQUEST whose id is too long", "request", { id: long, method: FS_STAT.name }],
    ["a cancel that is none", "request", { id: "c", method: CANCEL.name, payload: NO_MESSAGE }],
    ["a grant that is none", "request", { id: "c", method: CREDIT.name, payload: NO_MESSAGE }],
    ["a grant of nothing", "request", { id: "c", method: CREDIT.name }],
  ] as const)("%s", async (_, kind, frame) => {
    const peer = serving();
    await peer.send(kind, frame);
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ dropped: 1, refused: 0 });
  });

  test("a grant where credit is not listed by both", async () => {
    const peer = serving({ callerLists: [] });
    const payload = CREDIT.request.encode({ requestId: "7", bytes: 5 });
    await peer.send("request", { id: "c", method: CREDIT.name, payload });
    await expectAlive(peer);
    expect(peer.mux.counts.dropped).toBe(1);
  });

  test("too many of them end the stream", async () => {
    const peer = serving();
    for (let sent = 0; sent < DROPPED_FRAMES_MAX; sent += 1) await peer.send("unknown");
    await expectAlive(peer);
    await peer.send("unknown");
    const { error } = await peer.mux.closed;
    expect(error).toMatchObject({ code: "invalid_argument", reason: "PROTOCOL_ERROR" });
  });
});

describe("late, and nobody's fault", () => {
  test.each([
    [
      "a cancel of a call that is over",
      "request",
      { id: "c", method: CANCEL.name, payload: CANCEL.request.encode({ requestId: "7" }) },
    ],
    [
      "credit for a call that is over",
      "request",
      {
        id: "c",
        method: CREDIT.name,
        payload: CREDIT.request.encode({ requestId: "7", bytes: 1, upload: true }),
      },
    ],
  ] as const)("%s", async (_, kind, frame) => {
    const peer = serving();
    await peer.send(kind, frame);
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 1, dropped: 0, refused: 0 });
  });

  test("an answer to a notice", async () => {
    const peer = serving();
    await peer.mux.notify(HEARTBEAT_NOTICE, {});
    const { id } = await peer.next();
    await peer.send("error", { id, error: "unimplemented: x" });
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 1, dropped: 0 });
  });

  /** Serves an upload that is answered at once. */
  const answering = (): RawPeer =>
    rawPeer(new Handlers().unary(FS_STAT, () => ({})).clientStream(FS_UPLOAD, async () => ({})));
  const method = FS_UPLOAD.name;

  test("items after an early answer, which may repeat the method", async () => {
    const peer = answering();
    await peer.send("request", { id: "7", method, payload: chunk(1) });
    expect(await peer.next()).toMatchObject({ id: "7", kind: "response" });
    await peer.send("request", { id: "7", payload: chunk(1) });
    await peer.send("request", { id: "7", method, payload: chunk(1) });
    await peer.send("request", { id: "7" });
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 3, dropped: 0, refused: 0 });
    // Nothing follows the end of the items.
    await peer.send("request", { id: "7" });
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 3, dropped: 1 });
  });

  test("items of a call that was refused", async () => {
    const peer = serving();
    await peer.send("request", { id: "7", method: "no.Such", payload: chunk(1) });
    expect((await peer.next()).error).toStartWith("unimplemented: ");
    await peer.send("request", { id: "7", payload: chunk(1) });
    await peer.send("request", { id: "7" });
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 2, dropped: 0, refused: 1 });
  });

  test("as far as they are remembered", async () => {
    const peer = answering();
    for (let id = 0; id <= EARLY_ANSWERS_MAX; id += 1) {
      await peer.send("request", { id: `${id}`, method, payload: chunk(1) });
      expect(await peer.next()).toMatchObject({ id: `${id}`, kind: "response" });
    }
    await peer.send("request", { id: "0" });
    await peer.send("request", { id: "1" });
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 1, dropped: 1 });
  });
});

describe("refused with ERROR", () => {
  test.each([
    ["an unknown method", { method: "no.Such" }, "unimplemented"],
    ["a method that is too long", { method: "x".repeat(129) }, "invalid_argument"],
    ["a payload that is none", { method: FS_STAT.name, payload: NO_MESSAGE }, "invalid_argument"],
    [
      "a payload above the bound",
      { method: FS_STAT.name, payload: new Uint8Array(UNARY_BYTES_MAX + 1) },
      "invalid_argument",
    ],
  ] as const)("%s", async (_, frame, code) => {
    const peer = serving();
    await peer.send("request", { id: "7", ...frame });
    const answer = await peer.next();
    expect(answer).toMatchObject({ id: "7", kind: "error" });
    expect(answer.error).toStartWith(`${code}: `);
    await expectAlive(peer);
    expect(peer.mux.counts.refused).toBe(1);
  });

  test("an id that is open: both calls end, as one", async () => {
    const peer = serving();
    await peer.send("request", { id: "7", method: FS_WRITE_FILE.name });
    await peer.send("request", { id: "7", method: FS_WRITE_FILE.name });
    expect((await peer.next()).error).toStartWith("already_exists: ");
    await expectAlive(peer);
    expect(peer.mux.servedCalls).toBe(0);
  });

  test("the id of an open upload with another method", async () => {
    const peer = serving();
    await peer.send("request", { id: "7", method: FS_UPLOAD.name, payload: chunk(1) });
    await peer.send("request", { id: "7", method: FS_STAT.name });
    expect((await peer.next()).error).toStartWith("already_exists: ");
    await expectAlive(peer);
    expect(peer.mux.servedCalls).toBe(0);
  });

  test("the id of an open call in a notice, but for cancel and credit", async () => {
    const peer = serving();
    await peer.send("request", { id: "7", method: FS_WRITE_FILE.name });
    const payload = CREDIT.request.encode({ requestId: "7", bytes: 1 });
    await peer.send("request", { id: "7", method: CREDIT.name, payload });
    await expectAlive(peer);
    await peer.send("request", { id: "7", method: HEARTBEAT_NOTICE.name });
    expect((await peer.next()).error).toStartWith("already_exists: ");
    await expectAlive(peer);
  });

  test("an item after the end of the items", async () => {
    const peer = rawPeer(
      new Handlers()
        .unary(FS_STAT, () => ({}))
        .clientStream(FS_UPLOAD, (_, { signal }) => {
          const { promise, reject } = Promise.withResolvers<object>();
          signal.addEventListener("abort", () => reject(signal.reason), { once: true });
          return promise;
        }),
    );
    await peer.send("request", { id: "7", method: FS_UPLOAD.name, payload: chunk(1) });
    await peer.send("request", { id: "7" });
    await peer.send("request", { id: "7", payload: chunk(1) });
    expect((await peer.next()).error).toStartWith("already_exists: ");
    await expectAlive(peer);
  });

  test("an item that is none", async () => {
    const peer = serving();
    await peer.send("request", { id: "7", method: FS_UPLOAD.name, payload: chunk(1) });
    await peer.send("request", { id: "7", payload: NO_MESSAGE });
    expect((await peer.next()).error).toStartWith("invalid_argument: ");
    await expectAlive(peer);
  });

  test("an item that is too large", async () => {
    const peer = serving();
    await peer.send("request", { id: "7", method: FS_UPLOAD.name, payload: chunk(1) });
    await peer.send("request", { id: "7", payload: chunk(ITEM_BYTES_MAX) });
    expect((await peer.next()).error).toStartWith("invalid_argument: ");
    await expectAlive(peer);
  });

  test("items beyond the credit", async () => {
    const stuck = new Handlers()
      .unary(FS_STAT, () => ({}))
      .clientStream(FS_UPLOAD, (_, { signal }) => {
        const { promise, reject } = Promise.withResolvers<object>();
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        return promise;
      });
    const peer = rawPeer(stuck);
    await peer.send("request", {
      id: "7",
      method: FS_UPLOAD.name,
      payload: chunk(CREDIT_BYTES / 2),
    });
    await peer.send("request", { id: "7", payload: chunk(CREDIT_BYTES / 2) });
    await expectAlive(peer);
    await peer.send("request", { id: "7", payload: chunk(1) });
    expect((await peer.next()).error).toStartWith("resource_exhausted: ");
    await expectAlive(peer);
  });

  test("calls beyond those that may be open", async () => {
    const peer = serving();
    for (let id = 0; id < OPEN_CALLS_MAX; id += 1) {
      await peer.send("request", { id: `${id}`, method: FS_WRITE_FILE.name });
    }
    await peer.send("request", { id: "more", method: FS_STAT.name });
    expect(await peer.next()).toMatchObject({ id: "more", kind: "error" });
    const payload = CANCEL.request.encode({ requestId: "0" });
    await peer.send("request", { id: "c", method: CANCEL.name, payload });
    expect(await peer.next()).toMatchObject({ id: "0", kind: "error" });
    await expectAlive(peer);
  });

  test("bytes of requests beyond those that may be unfinished", async () => {
    const peer = serving({ callerLists: [] });
    const content = new Uint8Array(Math.floor(REQUEST_BYTES_MAX / 6) - 1024);
    const payload = FS_WRITE_FILE.request.encode({ content });
    for (let id = 0; id < 6; id += 1) {
      await peer.send("request", { id: `${id}`, method: FS_WRITE_FILE.name, payload });
    }
    await peer.send("request", { id: "more", method: FS_WRITE_FILE.name, payload });
    const answer = await peer.next();
    expect(answer.id).toBe("more");
    expect(answer.error).toStartWith("resource_exhausted: ");
    // Items have bounds of their own.
    const items = { id: "up", method: FS_UPLOAD.name, payload: chunk(ITEM_BYTES_MAX - 64) };
    await peer.send("request", items);
    await peer.send("request", { id: "up" });
    expect(await peer.next()).toMatchObject({ id: "up", kind: "response" });
  });
});

describe("answers that break a rule end the call at the caller", () => {
  test("a response that is none, and there is nothing left to cancel", async () => {
    const peer = serving();
    const call = peer.mux.call(FS_STAT, {}).catch((error) => error);
    const { id } = await peer.next();
    await peer.send("response", { id, payload: NO_MESSAGE });
    expect(await call).toMatchObject({ code: "internal" });
    await expectAlive(peer);
  });

  test("an item that is none", async () => {
    const peer = serving();
    const items = peer.mux.stream(EXEC_START, {})[Symbol.asyncIterator]();
    const { id } = await peer.next();
    await peer.send("response", { id, payload: NO_MESSAGE });
    expect(await items.next().catch((error) => error)).toMatchObject({ code: "internal" });
    expect(await peer.next()).toMatchObject({ method: CANCEL.name });
  });

  test("items beyond the credit", async () => {
    const peer = serving();
    const call = peer.mux.stream(EXEC_START, {});
    const { id } = await peer.next();
    const payload = EXEC_START.response.encode({ stdout: new Uint8Array(CREDIT_BYTES / 2) });
    for (let sent = 0; sent < 3; sent += 1) await peer.send("response", { id, payload });
    expect(await peer.next()).toMatchObject({ method: CANCEL.name });
    const items = call[Symbol.asyncIterator]();
    expect(await items.next().catch((error) => error)).toMatchObject({
      code: "resource_exhausted",
    });
  });

  test("an error without a code is unknown, one without end is cut", async () => {
    const peer = serving();
    for (const [error, expected] of [
      ["no code at all", { code: "unknown", message: "no code at all" }],
      ["", { code: "unknown", message: "" }],
      ["already_claimed: by t", { code: "unknown", message: "already_claimed: by t" }],
      ["aborted:no space", { code: "aborted", message: "no space" }],
      ["not_found: [lower] x", { code: "not_found", message: "[lower] x" }],
    ] as const) {
      const call = peer.mux.call(FS_STAT, {}).catch((thrown) => thrown);
      const { id } = await peer.next();
      await peer.send("error", { id, error });
      expect(await call).toMatchObject(expected);
    }
    const call = peer.mux.call(FS_STAT, {}).catch((thrown) => thrown);
    const { id } = await peer.next();
    await peer.send("error", { id, error: `internal: ${"é".repeat(100_000)}` });
    expect((await call).message.length).toBeLessThan(4096);
  });

  test("a second answer is late", async () => {
    const peer = serving();
    const call = peer.mux.call(FS_STAT, {});
    const { id } = await peer.next();
    await peer.send("response", { id });
    await peer.send("response", { id });
    expect(await call).toEqual({ stat: null });
    await expectAlive(peer);
    expect(peer.mux.counts).toMatchObject({ late: 1, dropped: 0 });
  });
});

describe("a peer without credit", () => {
  /** Timers that a test lets fire. */
  function heldTimers(): { startTimer: PeersOptions["startTimer"]; fire: () => void } {
    const actions = new Set<() => void>();
    return {
      startTimer: (_, action) => {
        actions.add(action);
        return { clear: () => void actions.delete(action) };
      },
      fire: () => {
        for (const action of [...actions]) action();
      },
    };
  }

  test("a slow reader holds the stream back, then loses its call; the stream lives", async () => {
    const { startTimer, fire } = heldTimers();
    const peer = serving({ callerLists: [], ...(startTimer && { startTimer }) });
    const call = peer.mux.stream(EXEC_START, {});
    const { id } = await peer.next();
    const payload = EXEC_START.response.encode({ stdout: new Uint8Array(200_000) });
    let sent = 0;
    const flood = (async () => {
      for (; sent < 50; sent += 1) await peer.send("response", { id, payload });
    })();
    const before = (): boolean => sent < 50;
    for (let turn = 0; turn < 1000; turn += 1) await Promise.resolve();
    expect(before()).toBe(true);
    expect(peer.mux.counts.bytesReceived).toBeLessThan(1_500_000);
    fire();
    await flood;
    expect(await peer.next()).toMatchObject({ method: CANCEL.name });
    const items = call[Symbol.asyncIterator]();
    expect(await items.next().catch((error) => error)).toMatchObject({
      code: "resource_exhausted",
    });
    await expectAlive(peer);
  });

  test("a reader that goes on loses nothing", async () => {
    const peer = serving({ callerLists: [] });
    const call = peer.mux.stream(EXEC_START, {});
    const { id } = await peer.next();
    const flood = (async () => {
      for (let seq = 1; seq <= 50; seq += 1) {
        const payload = EXEC_START.response.encode({ stdout: new Uint8Array(200_000), seq });
        await peer.send("response", { id, payload });
      }
      await peer.send("response", { id });
    })();
    let seen = 0;
    for await (const { seq } of call) {
      seen += 1;
      expect(seq).toBe(seen);
    }
    expect(seen).toBe(50);
    await flood;
    await expectAlive(peer);
  });
});
