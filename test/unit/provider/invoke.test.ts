import { describe, expect, test } from "bun:test";
import type { Outcome } from "../../../src/core/outcome.ts";
import type { Exec, ExecNotice, ExecSpec } from "../../../src/provider/contract.ts";
import { invokeThrough } from "../../../src/provider/invoke.ts";

const ENDED: Outcome = {
  exitCode: 0,
  signal: null,
  reason: "exit",
  limitsHit: [],
  violations: [],
  usage: null,
  durationMs: 1,
  killed: 0,
};

interface FakeOptions {
  readonly notices?: readonly ExecNotice[];
  readonly outcome?: Partial<Outcome>;
  /** Runs until it is killed. */
  readonly isEndless?: boolean;
}

/** A lease with one scripted exec. */
function fakeLease({ notices = [], outcome = {}, isEndless = false }: FakeOptions) {
  const seen: { spec?: ExecSpec; kills: string[] } = { kills: [] };
  const end = Promise.withResolvers<void>();
  if (!isEndless) end.resolve();
  const exec: Exec = {
    notices: (async function* () {
      yield* notices;
      await end.promise;
    })(),
    pid: 2,
    write: () => Promise.resolve(),
    closeInput: () => Promise.resolve(),
    signal: () => undefined,
    resize: () => undefined,
    kill: (reason) => {
      seen.kills.push(reason);
      end.resolve();
    },
    outcome: end.promise.then(() => ({ ...ENDED, ...outcome })),
  };
  return {
    seen,
    exec: async (spec: ExecSpec) => {
      seen.spec = spec;
      return exec;
    },
  };
}

const output = (channel: "stdout" | "stderr", bytes: Uint8Array): ExecNotice => ({
  type: "output",
  channel,
  bytes,
});

describe("invokeThrough()", () => {
  test("passes the command on, its variables over the environment's", async () => {
    const lease = fakeLease({});
    await invokeThrough(
      lease,
      { executable: "x", arguments: ["a"], directory: "/d", variables: { A: "2" }, stdin: "ü" },
      { A: "1", B: "1" },
    );
    expect(lease.seen.spec).toMatchObject({
      executable: "x",
      arguments: ["a"],
      directory: "/d",
      variables: { A: "2", B: "1" },
      stdin: new Uint8Array([0xc3, 0xbc]),
    });
  });

  test("returns 128 + n for a signal, and the code otherwise", async () => {
    const killed = fakeLease({ outcome: { exitCode: null, signal: "SIGTERM", reason: "signal" } });
    expect((await invokeThrough(killed, { executable: "x" }, {})).status).toBe(143);
    const failed = fakeLease({ outcome: { exitCode: 3 } });
    expect((await invokeThrough(failed, { executable: "x" }, {})).status).toBe(3);
  });

  test("a lost command is an error, never a status", async () => {
    const lost = fakeLease({
      outcome: { exitCode: null, reason: "setup_failed", error: { message: "gone", hint: "h" } },
    });
    expect(
      await invokeThrough(lost, { executable: "x" }, {}).catch((error: unknown) => error),
    ).toMatchObject({ code: "unavailable", reason: "COMMAND_LOST", message: "gone", hint: "h" });
  });

  test("the end of the sandbox's own time is an error that names the limit", async () => {
    const limit = { limit: "wall_seconds", value: 3, observed: 3, sampled: false } as const;
    const ended = fakeLease({
      outcome: { exitCode: null, signal: "SIGKILL", reason: "wall_limit", limitsHit: [limit] },
    });
    expect(
      await invokeThrough(ended, { executable: "x" }, {}).catch((error: unknown) => error),
    ).toMatchObject({
      code: "deadline_exceeded",
      field: "limits.wall_seconds",
      message: expect.stringContaining("wall_seconds 3"),
    });
  });

  test("keeps the tail of each stream, cut at a character", async () => {
    const text = Buffer.from("aü\u{1f600}bc");
    const notices = [...text].map((byte) => output("stdout", Uint8Array.of(byte)));
    const tail = async (retain: number) =>
      (await invokeThrough(fakeLease({ notices }), { executable: "x", retain }, {})).stdout;
    expect(await tail(100)).toBe("aü\u{1f600}bc");
    expect(await tail(2)).toBe("bc");
    expect(await tail(3)).toBe("bc");
    expect(await tail(6)).toBe("\u{1f600}bc");
    expect(await tail(7)).toBe("\u{1f600}bc");
    expect(await tail(0)).toBe("");
  });

  test("memory of the tail is bounded while the output is not", async () => {
    const piece = new Uint8Array(1000).fill(120);
    const notices = Array.from({ length: 5000 }, () => output("stderr", piece));
    const { stderr } = await invokeThrough(
      fakeLease({ notices }),
      { executable: "x", retain: 2500 },
      {},
    );
    expect(stderr.length).toBe(2500);
  });

  test("observe() sees text over chunk borders, and broken UTF-8 replaced", async () => {
    const seen: string[] = [];
    const notices = [
      output("stdout", Uint8Array.of(0xc3)),
      output("stderr", Buffer.from("e")),
      output("stdout", Uint8Array.of(0xbc, 0xff)),
      output("stdout", Uint8Array.of(0xc3)),
    ];
    await invokeThrough(
      fakeLease({ notices }),
      { executable: "x", observe: (channel, text) => seen.push(`${channel} ${text}`) },
      {},
    );
    expect(seen).toEqual(["stderr e", "stdout ü\ufffd", "stdout \ufffd"]);
  });

  test("signal and deadline kill it, and the error says which", async () => {
    const controller = new AbortController();
    const cancelled = fakeLease({ isEndless: true });
    const first = invokeThrough(
      cancelled,
      { executable: "x", signal: controller.signal },
      {},
    ).catch((error: unknown) => error);
    controller.abort();
    expect(await first).toMatchObject({ code: "canceled" });
    expect(cancelled.seen.kills).toEqual(["user"]);

    const late = fakeLease({ isEndless: true });
    expect(
      await invokeThrough(late, { executable: "x", deadlineMs: 5 }, {}).catch(
        (error: unknown) => error,
      ),
    ).toMatchObject({ code: "deadline_exceeded" });
    expect(late.seen.kills).toEqual(["wall_limit"]);

    const never = fakeLease({});
    expect(
      await invokeThrough(never, { executable: "x", signal: AbortSignal.abort() }, {}).catch(
        (error: unknown) => error,
      ),
    ).toMatchObject({ code: "canceled" });
    expect(never.seen.spec).toBeUndefined();
  });

  test("signal and deadline also stop a start that hangs, or kill what it becomes", async () => {
    const stuck = {
      exec: ({ signal }: ExecSpec) =>
        new Promise<Exec>((_, reject) => {
          signal?.addEventListener("abort", () => reject(new Error("the start was given up")));
        }),
    };
    expect(
      await invokeThrough(stuck, { executable: "x", deadlineMs: 5 }, {}).catch(
        (error: unknown) => error,
      ),
    ).toMatchObject({ code: "deadline_exceeded" });

    const controller = new AbortController();
    const deaf = fakeLease({ isEndless: true });
    const slow = {
      exec: async (spec: ExecSpec) => {
        controller.abort();
        return await deaf.exec(spec);
      },
    };
    const command = { executable: "x", signal: controller.signal };
    expect(await invokeThrough(slow, command, {}).catch((error: unknown) => error)).toMatchObject({
      code: "canceled",
    });
    expect(deaf.seen.kills).toEqual(["user"]);
  });

  test("a deadline beyond what a timer holds is not over at once", async () => {
    const lease = fakeLease({ isEndless: true });
    const controller = new AbortController();
    const command = { executable: "x", deadlineMs: 2 ** 40, signal: controller.signal };
    const ended = invokeThrough(lease, command, {}).catch((error: unknown) => error);
    await new Promise((resolve) => setTimeout(resolve, 5));
    controller.abort();
    expect(await ended).toMatchObject({ code: "canceled" });
  });
});
