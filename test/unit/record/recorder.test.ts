import { describe, expect, test } from "bun:test";
import { type Clock, systemClock } from "../../../src/core/clock.ts";
import type { EventDraft } from "../../../src/core/event.ts";
import { eventOf } from "../../../src/core/output-text.ts";
import type { ExecNotice, OutputChannel } from "../../../src/provider/contract.ts";
import {
  COMMIT_EVENTS_MAX,
  PENDING_BYTES_MAX,
  Recorder,
  type RecorderOptions,
} from "../../../src/record/recorder.ts";
import type { TimedDraft } from "../../../src/store/contract.ts";
import { randomBytes, randomChunks, randomFrom } from "./random.ts";

function output(text: string | Uint8Array, channel: OutputChannel = "stdout"): ExecNotice {
  return { type: "output", channel, bytes: typeof text === "string" ? Buffer.from(text) : text };
}

async function* from(notices: Iterable<ExecNotice>): AsyncGenerator<ExecNotice> {
  yield* notices;
}

function recorder(options: Partial<RecorderOptions> = {}) {
  const batches: (readonly TimedDraft[])[] = [];
  const failures: unknown[] = [];
  const made = new Recorder({
    append: async (drafts) => batches.push(drafts),
    clock: systemClock,
    onFailure: (error) => failures.push(error),
    ...options,
  });
  return {
    recorder: made,
    batches,
    failures,
    drafts: () => batches.flat().map(({ draft }) => eventOf(draft)),
  };
}

function bytesOf(drafts: readonly EventDraft[], channel: OutputChannel): Buffer {
  return Buffer.concat(
    drafts
      .filter(({ kind }) => kind === channel)
      .map(({ data, encoding }) => Buffer.from(data as string, encoding ?? "utf8")),
  );
}

describe("Recorder.follow()", () => {
  test("commits streams that take turns in bounded batches, while they come", async () => {
    const { recorder: made, batches } = recorder();
    let committedEarly = 0;
    async function* turns(): AsyncGenerator<ExecNotice> {
      for (let index = 0; index < 20_000; index += 1) {
        yield output("x", index % 2 === 0 ? "stdout" : "stderr");
      }
      committedEarly = batches.length;
    }
    await made.follow(turns());
    expect(committedEarly).toBeGreaterThan(0);
    expect(Math.max(...batches.map(({ length }) => length))).toBeLessThanOrEqual(COMMIT_EVENTS_MAX);
    expect(batches.flat()).toHaveLength(20_000);
  });

  test.each(Array.from({ length: 100 }, (_, seed) => [seed]))(
    "keeps every byte of both streams (seed %d)",
    async (seed) => {
      const random = randomFrom(seed);
      const wanted = {
        stdout: randomBytes(random, random(3000)),
        stderr: randomBytes(random, random(3000)),
      };
      const chunks = {
        stdout: [...randomChunks(random, wanted.stdout, 200)],
        stderr: [...randomChunks(random, wanted.stderr, 200)],
      };
      const notices: ExecNotice[] = [];
      while (chunks.stdout.length + chunks.stderr.length > 0) {
        const channel = random(2) === 0 ? "stdout" : "stderr";
        const chunk = chunks[channel].shift();
        if (chunk !== undefined) notices.push(output(chunk, channel));
      }
      const bounds = { rowBytesMax: 4 + random(300), rowsMax: 1 + random(40) };
      const { recorder: made, drafts } = recorder({ bounds });
      await made.follow(from(notices));
      expect(bytesOf(drafts(), "stdout")).toEqual(Buffer.from(wanted.stdout));
      expect(bytesOf(drafts(), "stderr")).toEqual(Buffer.from(wanted.stderr));
    },
  );

  test("keeps the order of arrival over streams and notices", async () => {
    const { recorder: made, drafts } = recorder();
    const hit = { limit: "pids", value: 1, observed: 1, sampled: false } as const;
    const violation = { type: "seccomp_violation", syscall: "ptrace" } as const;
    await made.follow(
      from([
        output("a"),
        output("b"),
        output("c", "stderr"),
        output("d"),
        { type: "limit", hit },
        output("e"),
        { type: "usage", cpuMs: 3, memoryBytes: null, pids: 2 },
        output("f", "stderr"),
        { type: "truncated", channel: "stderr", limitBytes: 7 },
        { type: "violation", violation },
      ]),
    );
    expect(drafts()).toEqual([
      { kind: "stdout", data: "ab" },
      { kind: "stderr", data: "c" },
      { kind: "stdout", data: "d" },
      { kind: "limit", data: hit },
      { kind: "stdout", data: "e" },
      { kind: "usage", data: { cpu_ms: 3, memory_bytes: null, pids: 2 } },
      { kind: "stderr", data: "f" },
      { kind: "truncated", data: { stream: "stderr", limit_bytes: 7 } },
      { kind: "violation", data: violation },
    ]);
  });

  test("coalesces rows once a stream has had its number of them", async () => {
    const bounds = { rowBytesMax: 10, rowsMax: 3 };
    const { recorder: made, drafts } = recorder({ bounds });
    const notices: ExecNotice[] = [];
    for (let count = 0; count < 25; count++) notices.push(output("a"), output("b", "stderr"));
    await made.follow(from(notices));
    const sizes = (kind: OutputChannel) =>
      drafts().flatMap((draft) => (draft.kind === kind ? [(draft.data as string).length] : []));
    expect(sizes("stdout")).toEqual([1, 1, 1, 10, 10, 2]);
    expect(sizes("stderr")).toEqual([1, 1, 1, 10, 10, 2]);
  });

  test("ends a coalesced stream before it says that it was truncated", async () => {
    const { recorder: made, drafts } = recorder({ bounds: { rowBytesMax: 10, rowsMax: 1 } });
    const truncated: ExecNotice = { type: "truncated", channel: "stdout", limitBytes: 3 };
    await made.follow(from([output("a"), output("x", "stderr"), output("b"), truncated]));
    expect(drafts().map(({ kind }) => kind)).toEqual(["stdout", "stderr", "stdout", "truncated"]);
  });

  test("commits what is pending while the program waits", async () => {
    const committed = Promise.withResolvers<readonly TimedDraft[]>();
    const { recorder: made } = recorder({ append: async (drafts) => committed.resolve(drafts) });
    const go = Promise.withResolvers<void>();
    const followed = made.follow(
      (async function* () {
        yield output("name? ");
        await go.promise;
      })(),
    );
    const [first] = await committed.promise;
    expect(first?.draft).toEqual({ kind: "stdout", bytes: Uint8Array.from(Buffer.from("name? ")) });
    go.resolve();
    await followed;
  });

  test("holds the exec back while the log is slower, and keeps little", async () => {
    const chunk = new Uint8Array(64 * 1024).fill(0x61);
    let taken = 0;
    let committed = 0;
    let most = 0;
    const gate: { open: () => void }[] = [];
    const { recorder: made } = recorder({
      append: async (drafts) => {
        await new Promise<void>((open) => gate.push({ open }));
        committed += drafts.length;
      },
    });
    const followed = made.follow(
      (async function* () {
        for (let count = 0; count < 200; count++) {
          taken += 1;
          most = Math.max(most, taken - committed);
          yield output(chunk.slice());
        }
      })(),
    );
    let isDone = false;
    void followed.then(() => {
      isDone = true;
    });
    while (!isDone) {
      await new Promise((resolve) => setImmediate(resolve));
      gate.shift()?.open();
    }
    expect(committed).toBe(200);
    // One batch on its way, one waiting, and the one that was just taken.
    expect(most).toBeLessThanOrEqual((2 * PENDING_BYTES_MAX) / chunk.length + 2);
  });

  test("after a failed commit reads on, keeps nothing, and says so at the end", async () => {
    let calls = 0;
    const { recorder: made, failures } = recorder({
      append: () => {
        calls += 1;
        return Promise.reject(new Error("disk full"));
      },
    });
    let taken = 0;
    const followed = made.follow(
      (async function* () {
        for (; taken < 1000; taken++) yield output(new Uint8Array(64 * 1024));
      })(),
    );
    await expect(followed).rejects.toThrow("disk full");
    expect([taken, calls, failures.length]).toEqual([1000, 1, 1]);
  });

  test("frees the memory of what it has taken, and of nothing beside it", async () => {
    const { recorder: made, drafts } = recorder();
    const whole = new Uint8Array(64 * 1024).fill(0x61);
    const large = new Uint8Array(64 * 1024).fill(0x62);
    const part = large.subarray(0, 32 * 1024);
    await made.follow(from([output(whole), output(part)]));
    expect(whole.buffer.byteLength).toBe(0);
    expect(large.buffer.byteLength).toBe(64 * 1024);
    const text = `${"a".repeat(64 * 1024)}${"b".repeat(32 * 1024)}`;
    expect(bytesOf(drafts(), "stdout").toString()).toBe(text);
  });

  test("times never go back, and are those of the first byte", async () => {
    const times = [1000, 2000, 500, 3000];
    const clock: Clock = { now: () => times.shift() ?? 4000, monotonicMs: () => 0 };
    const { recorder: made, batches } = recorder({ clock });
    await made.follow(from([output("a"), output("b", "stderr"), output("c"), output("d")]));
    const rows = batches.flat();
    expect(rows.map(({ at }) => at)).toEqual([1000, 2000, 2000]);
    expect(rows.map(({ draft }) => eventOf(draft).data)).toEqual(["a", "b", "cd"]);
  });
});
