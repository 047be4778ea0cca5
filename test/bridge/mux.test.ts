// Calls of every kind between two muxes over a stream in memory.

import { describe, expect, test } from "bun:test";
import type { StreamContext } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { CREDIT_BYTES, ITEM_BYTES_MAX } from "../../src/bridge/limits.ts";
import {
  EXEC_START,
  FS_READ_FILE,
  FS_STAT,
  FS_UPLOAD,
  HEARTBEAT_NOTICE,
} from "../../src/bridge/methods.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { ExecItem, FsUploadItem, HeartbeatRequest } from "../../src/gen/messages.ts";
import { peers } from "./peers.ts";

const never = new Promise<never>(() => undefined);

/** Resolves when a signal aborts. */
function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

async function* numbers(count: number, bytes: number): AsyncGenerator<Partial<ExecItem>> {
  for (let seq = 1; seq <= count; seq += 1) yield { stdout: new Uint8Array(bytes), seq };
}

async function failure(promise: Promise<unknown>): Promise<CprgError> {
  return await promise.then(
    () => {
      throw new Error("it did not fail");
    },
    (error: CprgError) => error,
  );
}

describe("unary", () => {
  test("a request is answered with its response", async () => {
    const handlers = new Handlers().unary(FS_STAT, ({ path }) => ({
      stat: { name: path, type: "file", size: 3, mode: 0o644, modifiedMs: -1, linkTarget: "" },
    }));
    const { caller } = peers(handlers);
    const { stat } = await caller.call(FS_STAT, { path: "a" });
    expect(stat).toMatchObject({ name: "a", size: 3, modifiedMs: -1 });
  });

  test("an empty response is a response", async () => {
    const { caller } = peers(new Handlers().unary(FS_STAT, () => ({})));
    expect(await caller.call(FS_STAT, {})).toEqual({ stat: null });
  });

  test("code, reason and message of what a handler throws arrive", async () => {
    const handlers = new Handlers().unary(FS_STAT, () => {
      throw new CprgError("aborted", "claim 7 is not held", { reason: "STALE_EPOCH" });
    });
    const error = await failure(peers(handlers).caller.call(FS_STAT, {}));
    expect(error).toMatchObject({
      code: "aborted",
      reason: "STALE_EPOCH",
      message: "claim 7 is not held",
      retryable: true,
    });
  });

  test("what a handler throws besides is internal, and says nothing", async () => {
    const bugs: unknown[] = [];
    const handlers = new Handlers().unary(FS_STAT, () => {
      throw new TypeError("secret");
    });
    const { caller } = peers(handlers, { onBug: (error) => void bugs.push(error) });
    const error = await failure(caller.call(FS_STAT, {}));
    expect(error).toMatchObject({ code: "internal", message: "the handler failed" });
    expect(bugs).toHaveLength(1);
  });

  test("an unknown method is unimplemented", async () => {
    const error = await failure(peers(new Handlers()).caller.call(FS_STAT, {}));
    expect(error).toMatchObject({ code: "unimplemented" });
  });

  test("an aborted signal rejects at once and aborts the handler", async () => {
    const started = Promise.withResolvers<AbortSignal>();
    const handlers = new Handlers().unary(FS_STAT, async (_, { signal }) => {
      started.resolve(signal);
      await aborted(signal);
      return {};
    });
    const { caller, callee } = peers(handlers);
    const controller = new AbortController();
    const call = failure(caller.call(FS_STAT, {}, { signal: controller.signal }));
    const signal = await started.promise;
    controller.abort(new Error("changed my mind"));
    expect(await call).toMatchObject({ code: "canceled", message: "changed my mind" });
    await aborted(signal);
    expect(signal.reason).toMatchObject({ code: "canceled", message: "changed my mind" });
    caller.close();
    await callee.closed;
    expect(callee.servedCalls).toBe(0);
  });

  test("a signal that is aborted already sends nothing", async () => {
    const { caller } = peers(new Handlers());
    const error = await failure(caller.call(FS_STAT, {}, { signal: AbortSignal.abort() }));
    expect(error.code).toBe("canceled");
    expect(caller.counts.framesSent).toBe(0);
  });

  test("a timeout is deadline_exceeded on this side, and a cancel on the other", async () => {
    const reason = Promise.withResolvers<unknown>();
    const handlers = new Handlers().unary(FS_STAT, async (_, { signal }) => {
      await aborted(signal);
      reason.resolve(signal.reason);
      return {};
    });
    const error = await failure(peers(handlers).caller.call(FS_STAT, {}, { timeoutMs: 1 }));
    expect(error.code).toBe("deadline_exceeded");
    expect(await reason.promise).toMatchObject({ code: "canceled", message: "deadline exceeded" });
  });

  test("a response above the bound is TOO_LARGE, not sent", async () => {
    const content = new Uint8Array(4 * 1024 * 1024);
    const { caller } = peers(new Handlers().unary(FS_READ_FILE, () => ({ content })));
    const error = await failure(caller.call(FS_READ_FILE, {}));
    expect(error).toMatchObject({ code: "out_of_range", reason: "TOO_LARGE" });
  });
});

describe("server streaming", () => {
  test("items come in order, then the end", async () => {
    const { caller } = peers(new Handlers().serverStream(EXEC_START, () => numbers(100, 10)));
    const seen: number[] = [];
    const call = caller.stream(EXEC_START, {});
    for await (const { seq } of call) seen.push(seq);
    expect(seen).toEqual(Array.from({ length: 100 }, (_, index) => index + 1));
    expect(await call.ended).toEqual({ error: undefined });
  });

  test("items come before the error that ends the call", async () => {
    const handlers = new Handlers().serverStream(EXEC_START, async function* () {
      yield { seq: 1 };
      throw new CprgError("data_loss", "gone");
    });
    const seen: number[] = [];
    const read = async (): Promise<void> => {
      for await (const { seq } of peers(handlers).caller.stream(EXEC_START, {})) seen.push(seq);
    };
    expect(await failure(read())).toMatchObject({ code: "data_loss", message: "gone" });
    expect(seen).toEqual([1]);
  });

  test("cancel() goes on until the callee has ended the call", async () => {
    let hasCleanedUp = false;
    const handlers = new Handlers().serverStream(EXEC_START, async function* (_, { signal }) {
      try {
        yield { seq: 1 };
        await aborted(signal);
        yield { seq: 2 };
      } finally {
        hasCleanedUp = true;
      }
    });
    const call = peers(handlers).caller.stream(EXEC_START, {});
    const read = async (): Promise<void> => {
      for await (const _ of call) call.cancel("enough");
    };
    expect(await failure(read())).toMatchObject({ code: "canceled", message: "enough" });
    expect(hasCleanedUp).toBe(true);
  });

  test("a reader that leaves the loop cancels the call", async () => {
    const gone = Promise.withResolvers<void>();
    const handlers = new Handlers().serverStream(EXEC_START, async function* () {
      try {
        yield* numbers(1_000_000, 1000);
      } finally {
        gone.resolve();
      }
    });
    const call = peers(handlers).caller.stream(EXEC_START, {});
    for await (const _ of call) break;
    await gone.promise;
    expect((await call.ended).error?.code).toBe("canceled");
  });

  test("a reader that does not read stops the handler at the credit, and no other call", async () => {
    let made = 0;
    const handlers = new Handlers()
      .serverStream(EXEC_START, async function* () {
        for (;;) {
          made += 1;
          yield { stdout: new Uint8Array(1000), seq: made };
        }
      })
      .unary(FS_STAT, () => ({}));
    const { caller } = peers(handlers);
    const call = caller.stream(EXEC_START, {});
    const reader = call[Symbol.asyncIterator]();
    await reader.next();
    let before = -1;
    while (made !== before) {
      before = made;
      for (let turn = 0; turn < 20; turn += 1) await caller.call(FS_STAT, {});
    }
    expect(made * 1080).toBeGreaterThan(CREDIT_BYTES);
    expect(made * 1064).toBeLessThan(CREDIT_BYTES + 10_000);
    // Reading lets it go on.
    for (let read = 0; read < 1000; read += 1) await reader.next();
    expect(made).toBeGreaterThan(1000);
    await reader.return?.();
  });

  test("the handler hears which items have been consumed", async () => {
    const contexts: StreamContext[] = [];
    const heard: number[] = [];
    const handlers = new Handlers().serverStream(EXEC_START, (_, context) => {
      contexts.push(context);
      context.onAcknowledged((items) => heard.push(items));
      return numbers(20, 60_000);
    });
    let read = 0;
    for await (const _ of peers(handlers).caller.stream(EXEC_START, {})) {
      read += 1;
      expect(contexts[0]?.acknowledgedItems ?? 0).toBeLessThan(read);
    }
    expect(contexts[0]?.hasCredit).toBe(true);
    expect(heard.length).toBeGreaterThan(3);
    expect(heard).toEqual([...heard].sort((a, b) => a - b));
  });

  test("an item with nothing set is refused where it is made", async () => {
    const bad = new Handlers().serverStream(EXEC_START, async function* () {
      yield {};
    });
    const [first] = [peers(bad).caller.stream(EXEC_START, {})];
    const read = failure((first as AsyncIterable<ExecItem>)[Symbol.asyncIterator]().next());
    expect(await read).toMatchObject({ code: "internal", message: "an item has nothing set" });
  });

  test("an item above the bound is TOO_LARGE", async () => {
    const handlers = new Handlers().serverStream(EXEC_START, () => numbers(1, ITEM_BYTES_MAX));
    const call = peers(handlers).caller.stream(EXEC_START, {});
    const error = await failure(call[Symbol.asyncIterator]().next());
    expect(error).toMatchObject({ code: "out_of_range", reason: "TOO_LARGE" });
  });
});

describe("client streaming", () => {
  const counting = new Handlers().clientStream(FS_UPLOAD, async (items) => {
    let bytes = 0;
    let entries = 0;
    for await (const { chunk } of items) {
      bytes += chunk?.length ?? 0;
      entries += 1;
    }
    return { bytes, entries };
  });

  async function* chunks(count: number, bytes: number): AsyncGenerator<Partial<FsUploadItem>> {
    for (let made = 0; made < count; made += 1) yield { chunk: new Uint8Array(bytes) };
  }

  test("all items arrive, whatever the credit", async () => {
    const { caller } = peers(counting);
    const answer = await caller.upload(FS_UPLOAD, chunks(200, 10_000));
    expect(answer).toEqual({ bytes: 2_000_000, entries: 200 });
  });

  test("an upload without items is one without items", async () => {
    expect(await peers(counting).caller.upload(FS_UPLOAD, [])).toEqual({ bytes: 0, entries: 0 });
  });

  test("an early answer stops the pulling", async () => {
    const returned = Promise.withResolvers<void>();
    const handlers = new Handlers().clientStream(FS_UPLOAD, async (items) => {
      for await (const _ of items) throw new CprgError("permission_denied", "no");
      return {};
    });
    async function* endless(): AsyncGenerator<Partial<FsUploadItem>> {
      try {
        yield* chunks(1_000_000, 1000);
      } finally {
        returned.resolve();
      }
    }
    const error = await failure(peers(handlers).caller.upload(FS_UPLOAD, endless()));
    expect(error).toMatchObject({ code: "permission_denied", message: "no" });
    await returned.promise;
  });

  test("an early answer is heard while the source is stuck", async () => {
    const handlers = new Handlers().clientStream(FS_UPLOAD, async () => ({ bytes: 7 }));
    async function* stuck(): AsyncGenerator<Partial<FsUploadItem>> {
      yield* chunks(1, 1);
      await never;
    }
    expect(await peers(handlers).caller.upload(FS_UPLOAD, stuck())).toMatchObject({ bytes: 7 });
  });

  test("a source that fails cancels the call and is what the caller hears", async () => {
    const ended = Promise.withResolvers<unknown>();
    const handlers = new Handlers().clientStream(FS_UPLOAD, async (items) => {
      try {
        for await (const _ of items);
      } catch (error) {
        ended.resolve(error);
      }
      return {};
    });
    async function* failing(): AsyncGenerator<Partial<FsUploadItem>> {
      yield* chunks(2, 1);
      throw new CprgError("not_found", "no such file");
    }
    const error = await failure(peers(handlers).caller.upload(FS_UPLOAD, failing()));
    expect(error).toMatchObject({ code: "not_found" });
    expect(await ended.promise).toMatchObject({ code: "canceled" });
  });

  test("a source that fails before its first item opens no call", async () => {
    // biome-ignore lint/correctness/useYield: it fails first
    async function* failing(): AsyncGenerator<Partial<FsUploadItem>> {
      throw new CprgError("not_found", "no such file");
    }
    const { caller } = peers(counting);
    const error = await failure(caller.upload(FS_UPLOAD, failing()));
    expect(error).toMatchObject({ code: "not_found" });
    expect(caller.counts.framesSent).toBe(0);
  });

  test("a handler that does not read stops the source at the credit", async () => {
    const go = Promise.withResolvers<void>();
    const handlers = new Handlers()
      .clientStream(FS_UPLOAD, async (items) => {
        await go.promise;
        let entries = 0;
        for await (const _ of items) entries += 1;
        return { entries };
      })
      .unary(FS_STAT, () => ({}));
    let made = 0;
    async function* counted(): AsyncGenerator<Partial<FsUploadItem>> {
      for await (const item of chunks(1000, 1000)) {
        made += 1;
        yield item;
      }
    }
    const { caller } = peers(handlers);
    const upload = caller.upload(FS_UPLOAD, counted());
    let before = -1;
    while (made !== before) {
      before = made;
      for (let turn = 0; turn < 20; turn += 1) await caller.call(FS_STAT, {});
    }
    expect(made * 1064).toBeLessThan(CREDIT_BYTES + 10_000);
    go.resolve();
    expect(await upload).toMatchObject({ entries: 1000 });
  });
});

describe("notices", () => {
  test("are heard and not answered", async () => {
    const heard = Promise.withResolvers<HeartbeatRequest>();
    const handlers = new Handlers().notice(HEARTBEAT_NOTICE, (beat) => heard.resolve(beat));
    const { caller, callee } = peers(handlers);
    await caller.notify(HEARTBEAT_NOTICE, { taskId: "t", load: 0.5 });
    expect(await heard.promise).toMatchObject({ taskId: "t", load: 0.5, claims: [] });
    expect(callee.counts.framesSent).toBe(0);
  });
});

describe("the end of a stream", () => {
  const waiting = (): Handlers =>
    new Handlers()
      .unary(FS_STAT, async (_, { signal }) => {
        await aborted(signal);
        return {};
      })
      .serverStream(EXEC_START, async function* (_, { signal }) {
        yield { seq: 1 };
        await aborted(signal);
      });

  test("a cut ends open calls as unavailable and handlers as well", async () => {
    const { caller, callee, callerEnd } = peers(waiting());
    const call = failure(caller.call(FS_STAT, {}));
    const items = caller.stream(EXEC_START, {})[Symbol.asyncIterator]();
    await items.next();
    callerEnd.cut();
    expect(await call).toMatchObject({ code: "unavailable", retryable: true });
    expect(await failure(items.next())).toMatchObject({ code: "unavailable" });
    expect((await callee.closed).error?.code).toBe("unavailable");
    expect(callee.servedCalls).toBe(0);
  });

  test("a call on a stream that has ended fails at once", async () => {
    const { caller, callerEnd } = peers(waiting());
    callerEnd.cut();
    await caller.closed;
    expect((await failure(caller.call(FS_STAT, {}))).code).toBe("unavailable");
    const call = caller.stream(EXEC_START, {});
    expect((await failure(call[Symbol.asyncIterator]().next())).code).toBe("unavailable");
    expect((await failure(caller.upload(FS_UPLOAD, [{ chunk: new Uint8Array(1) }]))).code).toBe(
      "unavailable",
    );
    expect((await failure(caller.notify(HEARTBEAT_NOTICE, {}))).code).toBe("unavailable");
  });

  test("close() with an error gives it to the other side, close() without one ends well", async () => {
    const first = peers(waiting());
    first.caller.close(new CprgError("aborted", "replaced", { reason: "REPLACED" }));
    first.caller.close(new CprgError("internal", "later"));
    expect((await first.callee.closed).error).toMatchObject({ reason: "REPLACED" });
    expect((await first.caller.closed).error).toMatchObject({ reason: "REPLACED" });
    const second = peers(waiting());
    second.caller.close();
    expect(await second.callee.closed).toEqual({ error: undefined });
    expect(await second.caller.closed).toEqual({ error: undefined });
  });

  test("answers that are on their way out are sent before a normal end", async () => {
    const handlers = new Handlers().unary(FS_STAT, () => ({}));
    const { caller, callee, callerEnd } = peers(handlers);
    callerEnd.freeze();
    const answers = Array.from({ length: 10 }, () => caller.call(FS_STAT, {}));
    while (callee.counts.framesReceived < 10 || callee.servedCalls > 0) await Promise.resolve();
    expect(callee.counts.framesSent).toBeLessThan(10);
    callee.close();
    callerEnd.thaw();
    expect(await Promise.all(answers)).toHaveLength(10);
    expect(await caller.closed).toEqual({ error: undefined });
  });
});
