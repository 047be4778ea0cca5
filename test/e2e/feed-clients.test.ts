// Fifty readers of one log that join while it grows: each receives every event once, byte for byte
// as replay and the sealed export have it, however slowly it reads.

import { afterAll, beforeAll, expect } from "bun:test";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { call, type Home, makeHome } from "./cprg.ts";
import { readMessages } from "./frame-reader.ts";
import { followJob } from "./job-events.ts";
import { type Serving, serve } from "./server.ts";

const host = requireHost({ root: true, cgroup: true });
const { test } = host;

const CLIENTS = 50;
/** Writes that are read together become one event, more of them on a fast machine. */
const ROWS = 26_000;
const EVENTS_LEAST = 20_000;
/** For a host that is busy with other things; the tests wait for conditions, never for it. */
const TIMEOUT_MS = 300_000;
/** Messages for which the slow client waits until the log has grown, and by how many events. */
const SLOW_MESSAGES = 30;
const SLOW_STRIDE = 500;

const program = readFileSync(join(import.meta.dir, "../fixtures/e2e-many-rows.py"), "utf8");

let home: Home;
let server: Serving;
beforeAll(async () => {
  if (host.missing.length > 0) return;
  home = makeHome();
  server = await serve(home, { words: ["--log", "warn"] });
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  home?.[Symbol.dispose]();
});

/** How far the log has grown, as its first reader sees it. */
class Progress {
  #seq = 0;
  readonly #waiting: { readonly seq: number; resolve(): void }[] = [];

  /** Notes an event; infinity at the end. */
  reached(seq: number): void {
    this.#seq = Math.max(this.#seq, seq);
    for (let index = this.#waiting.length - 1; index >= 0; index -= 1) {
      if ((this.#waiting[index]?.seq ?? 0) > this.#seq) continue;
      this.#waiting.splice(index, 1)[0]?.resolve();
    }
  }

  async until(seq: number): Promise<void> {
    if (this.#seq >= seq) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ seq, resolve });
    await promise;
  }
}

/** What one reader received: the digest of its lines stands for them. */
interface Received {
  readonly fromSeq: number;
  readonly count: number;
  readonly digest: string;
  readonly code: number;
}

async function read(id: string, fromSeq: number, onSeq?: (seq: number) => void): Promise<Received> {
  const hash = createHash("sha256");
  let count = 0;
  const socket = new WebSocket(
    `${server.url.replace(/^http/, "ws")}/v1/jobs/${id}/stream?from_seq=${fromSeq}`,
    { headers: { Authorization: `Bearer ${server.key}` } },
  );
  const { promise, resolve } = Promise.withResolvers<number>();
  socket.onmessage = ({ data }) => {
    hash.update(`${data}\n`);
    count += 1;
    onSeq?.(fromSeq + count - 1);
  };
  socket.onclose = ({ code }) => resolve(code);
  const code = await promise;
  return { fromSeq, count, digest: hash.digest("hex"), code };
}

/** Upgrades by hand; what comes behind the answer is the beginning of the stream. */
async function upgrade(id: string): Promise<{ socket: Socket; rest: Buffer }> {
  const url = new URL(server.url);
  const socket = connect({ host: url.hostname, port: Number(url.port) });
  const lines = [
    `GET /v1/jobs/${id}/stream?from_seq=1 HTTP/1.1`,
    `Host: ${url.host}`,
    `Authorization: Bearer ${server.key}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  ];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  let answer = Buffer.alloc(0);
  while (!answer.includes("\r\n\r\n")) {
    const chunk = await new Promise<Buffer>((resolve, reject) => {
      socket.once("data", resolve);
      socket.once("error", reject);
    });
    socket.pause();
    answer = Buffer.concat([answer, chunk]);
  }
  expect(answer.toString("latin1")).toStartWith("HTTP/1.1 101");
  return { socket, rest: answer.subarray(answer.indexOf("\r\n\r\n") + 4) };
}

/** Takes a message, then waits until the log has grown well beyond it; later it reads on. */
async function readSlowly(id: string, progress: Progress): Promise<Received> {
  const { socket, rest } = await upgrade(id);
  const hash = createHash("sha256");
  let count = 0;
  for await (const line of readMessages(socket, rest)) {
    hash.update(`${line}\n`);
    count += 1;
    if (count <= SLOW_MESSAGES) await progress.until(count * SLOW_STRIDE);
  }
  socket.destroy();
  return { fromSeq: 1, count, digest: hash.digest("hex"), code: 1000 };
}

test(
  `${CLIENTS} clients that join at any time each receive what replay has`,
  async () => {
    const limits = { wall_seconds: 200, cpu_seconds: 200, output_kb: 65_536 };
    const job = { language: "python", code: program, args: [String(ROWS)], limits };
    const id = await server.submit(job);
    const progress = new Progress();
    const first = read(id, 1, (seq) => progress.reached(seq));
    void first.then(() => progress.reached(Number.POSITIVE_INFINITY));
    const slow = readSlowly(id, progress);
    const others = Array.from({ length: CLIENTS - 2 }, async (_, index) => {
      const joinsAt = Math.floor(Math.random() * EVENTS_LEAST);
      await progress.until(joinsAt);
      // Some want the whole log, some a part behind them, some what is still to come.
      const fromSeq = [1, 1 + Math.floor(joinsAt / 2), joinsAt + 100][index % 3] ?? 1;
      return await read(id, fromSeq);
    });
    const received = await Promise.all([first, slow, ...others]);

    const response = await server.request(`/v1/jobs/${id}/replay?format=ndjson`);
    const exported = await response.text();
    const lines = exported.trimEnd().split("\n").slice(0, -1);
    expect(lines.length).toBeGreaterThan(EVENTS_LEAST);
    for (const { fromSeq, count, digest, code } of received) {
      const wanted = lines.slice(fromSeq - 1);
      expect({ fromSeq, code, count }).toEqual({ fromSeq, code: 1000, count: wanted.length });
      const hash = createHash("sha256").update(wanted.map((line) => `${line}\n`).join(""));
      expect({ fromSeq, digest }).toEqual({ fromSeq, digest: hash.digest("hex") });
    }
    const replay = await (await server.request(`/v1/jobs/${id}/replay`)).text();
    const isSame = replay === `{"job_id":"${id}","events":[${lines.join(",")}],"complete":true}`;
    expect(isSame).toBe(true);

    const path = join(home.path, "export.ndjson");
    writeFileSync(path, exported);
    const verified = await call(["verify", path], { env: home.env });
    expect(verified).toMatchObject({ code: 0 });
    writeFileSync(path, exported.replace("row 777 ", "row 778 "));
    expect(await call(["verify", path], { env: home.env })).toMatchObject({ code: 1 });
  },
  TIMEOUT_MS,
);

test("what the program wrote is what its rows hold, of both streams", async () => {
  const count = 500;
  const id = await server.submit({ language: "python", code: program, args: [String(count)] });
  using job = followJob(server, id);
  expect(await job.closed).toBe(1000);
  for (const [fd, stream] of ["stdout", "stderr"].entries()) {
    const bytes = job.events
      .filter(({ kind }) => kind === stream)
      .map(({ data, encoding }) => Buffer.from(String(data), encoding ?? "utf8"));
    const wanted = Array.from({ length: count / 2 }, (_, index) => {
      const number = 2 * index + fd;
      return number % 100 === 0
        ? Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(`${number}\n`)])
        : Buffer.from(`row ${number} ä\n`);
    });
    expect(Buffer.concat(bytes).equals(Buffer.concat(wanted))).toBe(true);
  }
});
