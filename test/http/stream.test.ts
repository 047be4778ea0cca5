import { describe, expect, test } from "bun:test";
import { once } from "node:events";
import { STREAM_MESSAGES_PER_MIN } from "../../src/http/log-stream.ts";
import type { Program } from "../jobs/fake-provider.ts";
import { KEY_A, KEY_B, python, requestInit, useServer } from "./fixture.ts";
import { collectStream, connectWithoutReading } from "./ws-client.ts";

const asA = { Authorization: `Bearer ${KEY_A}` };

/** Prints `rows` rows of 60 KiB. */
function printRows(rows: number) {
  return async ({ out }: Program) => {
    for (let row = 0; row < rows; row++) {
      await out(`${row}`.padEnd(60 * 1024, "."), row % 2 === 0 ? "stdout" : "stderr");
    }
    return 0;
  };
}

async function replayLines(ask: Awaited<ReturnType<typeof useServer>>["ask"], id: string) {
  const { text } = await ask(`/v1/jobs/${id}/replay?format=ndjson`);
  return text.trimEnd().split("\n").slice(0, -1);
}

describe("GET /v1/jobs/{id}/stream", () => {
  test("gives history, then live events, then closes with 1000", async () => {
    const go = Promise.withResolvers<void>();
    await using fixture = await useServer({
      fake: {
        run: async ({ out }) => {
          await out("before\n");
          await go.promise;
          await out("after\n");
          return 0;
        },
      },
    });
    const { ask, server } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const url = new URL(`/v1/jobs/${json.job_id}/stream`, server.url);
    const early = collectStream(url, asA);
    const byQuery = collectStream(new URL(`${url}?key=${KEY_A}`), {});
    go.resolve();
    expect((await ask(`/v1/jobs/${json.job_id}/result`)).status).toBe(200);
    const late = collectStream(new URL(`${url}?from_seq=3`), asA);
    const lines = await replayLines(ask, json.job_id);
    expect(await early).toEqual({ lines, code: 1000 });
    expect(await byQuery).toEqual({ lines, code: 1000 });
    expect(await late).toEqual({ lines: lines.slice(2), code: 1000 });
    const afterEnd = collectStream(new URL(`${url}?from_seq=99`), asA);
    expect(await afterEnd).toEqual({ lines: [], code: 1000 });
  });

  test("gives every reader the same, wherever it joins", async () => {
    await using fixture = await useServer({ fake: { run: printRows(60) } });
    const { ask, server } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const url = new URL(`/v1/jobs/${json.job_id}/stream`, server.url);
    const readers = Array.from({ length: 20 }, async (_, index) => {
      await Array.from({ length: index * 5 }).reduce<Promise<void>>(
        (before) => before.then(() => new Promise((resolve) => setImmediate(resolve))),
        Promise.resolve(),
      );
      return await collectStream(url, asA);
    });
    const ends = await Promise.all(readers);
    const lines = await replayLines(ask, json.job_id);
    expect(lines.length).toBeGreaterThan(60);
    for (const end of ends) expect(end).toEqual({ lines, code: 1000 });
  });

  test("cuts off a client that never reads, and others do not notice", async () => {
    await using fixture = await useServer({
      fake: { run: printRows(400) },
      app: { streamStallMs: 1500 },
    });
    const { ask, server } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1", { limits: { output_kb: 65536 } }) });
    const url = new URL(`/v1/jobs/${json.job_id}/stream`, server.url);
    const stuck = await connectWithoutReading(url, KEY_A);
    const reader = collectStream(url, asA);
    const lines = await replayLinesAfterEnd(fixture, json.job_id);
    expect(await reader).toEqual({ lines, code: 1000 });
    // The job has ended and been read; only the server's patience with the stuck client is left.
    stuck.on("error", () => undefined);
    let taken = 0;
    stuck.on("data", (chunk) => {
      taken += chunk.length;
    });
    await until(() => fixture.server.openStreams === 0);
    stuck.resume();
    await once(stuck, "close");
    expect(taken).toBeLessThan(lines.join("").length);
    // Two stalls and megabytes of rows: more than the usual bound where others use the machine.
  }, 20_000);

  test("a client that floods it is told so and cut off", async () => {
    await using fixture = await useServer({
      fake: { run: () => new Promise<number>(() => undefined) },
    });
    const { json } = await fixture.ask("/v1/jobs", { body: python("1") });
    const url = new URL(`/v1/jobs/${json.job_id}/stream`, fixture.server.url);
    const socket = new WebSocket(url.href.replace(/^http/, "ws"), { headers: asA } as never);
    await once(socket, "open");
    const closed = once(socket, "close");
    for (let count = 0; count <= STREAM_MESSAGES_PER_MIN; count += 1) socket.send("x");
    const [{ code }] = await closed;
    expect(code).toBe(1008);
    await until(() => fixture.server.openStreams === 0);
  });

  test("answers before the upgrade: 401, 404, 400, 426, 503", async () => {
    await using fixture = await useServer({
      fake: { run: () => new Promise<number>(() => undefined) },
      app: { streamsMax: 2, streamsTenantMax: 1 },
    });
    const { ask, server } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const ofB = (await ask("/v1/jobs", { body: python("1"), key: KEY_B })).json.job_id;
    const path = `/v1/jobs/${json.job_id}/stream`;
    const upgrade = async (target: string, key: string | null) => {
      const headers = {
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
      };
      const init = requestInit({ key, headers });
      return (await fetch(new URL(target, server.url), init)).status;
    };
    expect(await upgrade(path, null)).toBe(401);
    expect(await upgrade(`${path}?key=wrong-key-0123456789`, null)).toBe(401);
    expect(await upgrade(path, KEY_B)).toBe(404);
    expect(await upgrade(`${path}?key=${KEY_B}`, null)).toBe(404);
    expect(await upgrade(`${path}?from_seq=0`, KEY_A)).toBe(400);
    expect((await ask(path)).status).toBe(426);
    const stuck = await connectWithoutReading(new URL(path, server.url), KEY_A);
    expect(await upgrade(path, KEY_A)).toBe(503);
    const other = await connectWithoutReading(new URL(`/v1/jobs/${ofB}/stream`, server.url), KEY_B);
    stuck.destroy();
    other.destroy();
    await until(() => server.openStreams === 0);
    const again = await connectWithoutReading(new URL(path, server.url), KEY_A);
    again.destroy();
  });
});

async function replayLinesAfterEnd(
  { ask }: { ask: Awaited<ReturnType<typeof useServer>>["ask"] },
  id: string,
) {
  expect((await ask(`/v1/jobs/${id}/result`)).status).toBe(200);
  return await replayLines(ask, id);
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}
