import { describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { CprgError } from "../../src/core/errors.ts";
import { silentLog } from "../../src/core/log.ts";
import { BODY_BYTES_MAX } from "../../src/http/body.ts";
import { startServer } from "../../src/http/serve.ts";
import { KEY_A, KEY_ADMIN, KEY_B, python, requestInit, useServer } from "./fixture.ts";
import { collectStream } from "./ws-client.ts";

const untilKilled = { run: () => new Promise<number>(() => undefined) };

describe("startServer()", () => {
  test("answers over a real connection", async () => {
    await using fixture = await useServer();
    const { ask, server } = fixture;
    expect(server.url.href).toBe(`http://127.0.0.1:${server.port}/`);
    const { json } = await ask("/v1/jobs", { body: python("print(6*7)") });
    expect((await ask(`/v1/jobs/${json.job_id}/result`)).json).toMatchObject({
      status: "succeeded",
      stdout: "print(6*7)",
    });
    const head = await ask("/healthz", { method: "HEAD", key: null });
    expect([head.status, head.text]).toEqual([200, ""]);
  });

  test("answers HEAD with the length of GET or with none, and never with 0", async () => {
    await using fixture = await useServer({ fake: { artifacts: { "a.txt": "eleven char" } } });
    const { ask, server } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const job = `/v1/jobs/${json.job_id}`;
    await ask(`${job}/result`);
    for (const [path, status, length] of [
      ["/healthz", 200, null],
      ["/openapi.json", 200, null],
      [`${job}/replay`, 200, null],
      [`${job}/files/a.txt`, 200, null],
      ["/nowhere", 404, null],
      ["/v1/jobs/none", 404, null],
    ] as const) {
      const head = await rawHead(server.port, path);
      expect(head).toStartWith(`HTTP/1.1 ${status} `);
      const said = /^content-length: *(\d+)/im.exec(head)?.[1] ?? null;
      expect([path, said]).toEqual([path, length]);
      // Nothing follows the header section.
      expect(head.indexOf("\r\n\r\n")).toBe(head.length - 4);
    }
  });

  test("refuses a large body before it is sent, and goes on", async () => {
    await using fixture = await useServer();
    const { ask, server } = fixture;
    const socket = connect({ host: "127.0.0.1", port: server.port });
    socket.write(
      [
        "POST /v1/jobs HTTP/1.1",
        "Host: x",
        `Authorization: Bearer ${KEY_A}`,
        "Content-Type: application/json",
        `Content-Length: ${BODY_BYTES_MAX + 1}`,
        "",
        "{",
      ].join("\r\n"),
    );
    const answer = await new Promise<string>((resolve) => {
      socket.once("data", (chunk) => resolve(chunk.toString()));
    });
    socket.destroy();
    expect(answer).toStartWith("HTTP/1.1 413");
    expect(answer).toContain("BODY_TOO_LARGE");
    const chunked = new ReadableStream({
      start: (controller) => {
        for (let sent = 0; sent <= BODY_BYTES_MAX; sent += 1024 * 1024) {
          controller.enqueue(new Uint8Array(1024 * 1024).fill(0x20));
        }
        controller.close();
      },
    });
    const init = { ...requestInit({ body: "" }), body: chunked, duplex: "half" };
    const { status } = await fetch(new URL("/v1/jobs", server.url), init as RequestInit);
    expect(status).toBe(413);
    expect((await ask("/healthz")).status).toBe(200);
  });

  /** Sends the head and a part of a body, and nothing more. */
  function sendPart(
    port: number,
    { declared, part, key = KEY_A }: { declared: number; part: string; key?: string },
  ) {
    const socket = connect({ host: "127.0.0.1", port });
    const head = [
      "POST /v1/jobs HTTP/1.1",
      "Host: x",
      `Authorization: Bearer ${key}`,
      "Content-Type: application/json",
      `Content-Length: ${declared}`,
    ];
    socket.write(`${head.join("\r\n")}\r\n\r\n${part}`);
    const answer = new Promise<string>((resolve) => {
      socket.once("data", (chunk) => resolve(chunk.toString()));
    });
    return { socket, answer };
  }

  test("says 408 to a body that does not come", async () => {
    await using fixture = await useServer({ app: { bodyTimeoutMs: 50 } });
    const { socket, answer } = sendPart(fixture.server.port, { declared: 100, part: "{" });
    expect(await answer).toStartWith("HTTP/1.1 408");
    expect(await answer).toContain("BODY_TIMEOUT");
    socket.destroy();
    expect((await fixture.ask("/healthz")).status).toBe(200);
  });

  test("takes a client that vanishes within its body for no failure", async () => {
    const statuses: unknown[] = [];
    const errors: string[] = [];
    const log = {
      ...silentLog,
      error: (message: string) => errors.push(message),
      info: (_: string, fields?: Record<string, unknown>) => statuses.push(fields?.["status"]),
    };
    await using fixture = await useServer({ app: { log } });
    const { socket } = sendPart(fixture.server.port, { declared: 100, part: "{" });
    await new Promise((resolve) => socket.once("ready", resolve));
    await fixture.ask("/healthz");
    socket.destroy();
    while (statuses.length < 2) await new Promise((resolve) => setImmediate(resolve));
    expect([statuses, errors]).toEqual([[200, 499], []]);
  });

  test("reads so many bytes of bodies at once, and no more", async () => {
    const app = { bodiesBytesMax: 2900, bodiesTenantBytesMax: 2000, bodiesReserveBytes: 100 };
    await using fixture = await useServer({ app });
    const { ask, server } = fixture;
    const held = sendPart(server.port, { declared: 1900, part: "{".repeat(1500) });
    let refused = await ask("/v1/jobs", { body: python("x".repeat(1000)) });
    while (refused.status === 201) {
      refused = await ask("/v1/jobs", { body: python("x".repeat(1000)) });
    }
    expect(refused).toMatchObject({ status: 503, json: { reason: "BODIES_FULL" } });
    expect(refused.headers.get("retry-after")).toBe("1");
    // Another tenant has its own share, of what is left in all.
    const ofB = { body: python("x".repeat(1000)), key: KEY_B };
    expect((await ask("/v1/jobs", ofB)).status).toBe(201);
    expect((await ask("/v1/jobs", { body: python("x".repeat(1600)), key: KEY_B })).status).toBe(
      503,
    );
    // What is in its reserve has room whatever others take.
    const largest = sendPart(server.port, { declared: 1900, part: "{".repeat(1600), key: KEY_B });
    let full = await ask("/v1/jobs", { body: python("x".repeat(300)), key: KEY_ADMIN });
    while (full.status === 201) {
      full = await ask("/v1/jobs", { body: python("x".repeat(300)), key: KEY_ADMIN });
    }
    expect((await ask("/v1/jobs", { body: python("1"), key: KEY_ADMIN })).status).toBe(201);
    largest.socket.destroy();
    held.socket.destroy();
    while ((await ask("/v1/jobs", { body: python("x".repeat(1000)) })).status !== 201) {}
  });

  test("counts no byte that was only declared", async () => {
    const app = { bodiesBytesMax: 3000, bodiesTenantBytesMax: 2000, bodiesReserveBytes: 100 };
    await using fixture = await useServer({ app });
    const { ask, server } = fixture;
    const idle = [KEY_B, KEY_B, KEY_ADMIN].map((key) =>
      sendPart(server.port, { declared: 1900, part: "{", key }),
    );
    await Promise.all(idle.map(({ socket }) => new Promise((done) => socket.once("ready", done))));
    for (let count = 0; count < 10; count += 1) await ask("/healthz");
    for (const key of [KEY_A, KEY_B]) {
      expect((await ask("/v1/jobs", { body: python("x".repeat(1500)), key })).status).toBe(201);
    }
    for (const { socket } of idle) socket.destroy();
  });

  test("sends megabytes of replay and result whole", async () => {
    const row = "x".repeat(64 * 1024);
    await using fixture = await useServer({
      fake: {
        run: async ({ out }) => {
          for (let count = 0; count < 100; count++) await out(row);
          return 0;
        },
      },
    });
    const { json } = await fixture.ask("/v1/jobs", { body: python("1") });
    const result = await fixture.ask(`/v1/jobs/${json.job_id}/result`);
    expect(result.json.stdout).toBe(row.repeat(100));
    const replay = await fixture.ask(`/v1/jobs/${json.job_id}/replay`);
    expect(replay.json.events).toHaveLength(103);
    const sealed = await fixture.ask(`/v1/jobs/${json.job_id}/replay?format=ndjson`);
    expect(sealed.text.trimEnd().split("\n")).toHaveLength(104);
  });

  test("breaks the connection off when a body cannot be finished", async () => {
    const row = "x".repeat(64 * 1024);
    const errors: string[] = [];
    const log = { ...silentLog, error: (message: string) => errors.push(message) };
    await using fixture = await useServer({
      fake: {
        run: async ({ out }) => {
          for (let count = 0; count < 50; count++) await out(row);
          return 0;
        },
      },
      app: { log },
    });
    const { ask, store } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    await ask(`/v1/jobs/${json.job_id}/result`);
    const read = store.events.read.bind(store.events);
    store.events.read = (subject, fromSeq, bounds) =>
      fromSeq > 20 ? Promise.reject(new Error("gone")) : read(subject, fromSeq, bounds);
    const broken = ask(`/v1/jobs/${json.job_id}/replay`).then(
      () => "whole",
      () => "broken",
    );
    expect(await broken).toBe("broken");
    expect(errors).toEqual(["answer broken off"]);
    expect((await ask("/healthz")).status).toBe(200);
  });

  test("ends a wait when its client goes away", async () => {
    await using fixture = await useServer({ fake: untilKilled });
    const { ask, jobs } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const client = new AbortController();
    const path = `/v1/jobs/${json.job_id}/result?wait_seconds=300`;
    const given = ask(path, { signal: client.signal }).catch((error: Error) => error.name);
    while (jobs.waiting === 0) await new Promise((resolve) => setImmediate(resolve));
    client.abort();
    expect(await given).toBe("AbortError");
    while (jobs.waiting > 0) await new Promise((resolve) => setImmediate(resolve));
  });

  test("says that an address is taken", async () => {
    await using fixture = await useServer();
    const { options, server } = fixture;
    const again = startServer({ ...options, hostname: "127.0.0.1", port: server.port });
    const error = await again.catch((thrown: unknown) => thrown);
    expect(CprgError.is(error) && error.message).toContain("another program listens there");
  });

  test("stops while streams and waits are open", async () => {
    const fixture = await useServer({ fake: untilKilled, service: { slots: 1 } });
    const { ask, server, jobs } = fixture;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const socket = new WebSocket(`${server.url.href}v1/jobs/${json.job_id}/stream?key=${KEY_A}`);
    await new Promise((resolve) => socket.addEventListener("message", resolve, { once: true }));
    const closed = new Promise<number>((resolve) => {
      socket.addEventListener("close", ({ code }) => resolve(code));
    });
    const queued = (await ask("/v1/jobs", { body: python("2") })).json.job_id;
    const waiting = ask(`/v1/jobs/${json.job_id}/result`);
    const waitingLong = ask(`/v1/jobs/${queued}/result`);
    while (jobs.waiting < 2) await new Promise((resolve) => setImmediate(resolve));
    await jobs.stop(0);
    expect((await waiting).json).toMatchObject({ status: "error", reason: "shutdown" });
    expect(await waitingLong).toMatchObject({ status: 202, json: { status: "queued" } });
    await server.stop();
    expect(await closed).toBe(1000);
    await expect(ask("/healthz")).rejects.toThrow();
  });

  test("lets the streams of ended jobs run out when it stops", async () => {
    const row = "x".repeat(64 * 1024);
    const { ask, server, jobs } = await useServer({
      fake: {
        run: async ({ out, killed }) => {
          for (let count = 0; count < 100; count++) await out(row);
          await killed;
          return 0;
        },
      },
    });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    while ((await ask(`/v1/jobs/${json.job_id}/replay?from_seq=102`)).json.events.length === 0) {}
    const url = new URL(`/v1/jobs/${json.job_id}/stream`, server.url);
    const ends = Array.from({ length: 4 }, () =>
      collectStream(url, { Authorization: `Bearer ${KEY_A}` }),
    );
    while (server.openStreams < 4) await new Promise((resolve) => setImmediate(resolve));
    await jobs.stop(0);
    await server.stop();
    for (const { lines, code } of await Promise.all(ends)) {
      expect([lines.length, code]).toEqual([103, 1000]);
      expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({ kind: "finished" });
    }
  });

  test("closes streams with 1001 when it stops before their jobs end", async () => {
    const { ask, server, jobs } = await useServer({ fake: untilKilled });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const socket = new WebSocket(`${server.url.href}v1/jobs/${json.job_id}/stream?key=${KEY_A}`);
    await new Promise((resolve) => socket.addEventListener("message", resolve, { once: true }));
    const closed = new Promise<number>((resolve) => {
      socket.addEventListener("close", ({ code }) => resolve(code));
    });
    await server.stop();
    expect(await closed).toBe(1001);
    await jobs.stop(0);
  });
});

/** Every byte of the answer to a HEAD request: fetch() would not show all of them. */
async function rawHead(port: number, path: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = connect({ host: "127.0.0.1", port });
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk.toString("latin1");
  });
  socket.once("close", () => resolve(answer)).once("error", reject);
  socket.write(
    `HEAD ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY_A}\r\nConnection: close\r\n\r\n`,
  );
  return await promise;
}
