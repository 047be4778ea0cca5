// Listener and dialer over real connections, the worker in another process.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { envelopeOf } from "../../src/bridge/codec.ts";
import { type DialOptions, dial } from "../../src/bridge/dialer.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import type { ListenerTls } from "../../src/bridge/listener.ts";
import { CREDIT, EXEC_START, FS_STAT, FS_UPLOAD } from "../../src/bridge/methods.ts";
import { openMux } from "../../src/bridge/mux.ts";
import { CprgError } from "../../src/core/errors.ts";
import { WorkerBridge } from "../../src/gen/outrigger/v1/bridge_pb.js";
import { makeCertificate } from "../helpers/certificate.ts";
import { requireHost } from "../helpers/host.ts";
import {
  type Control,
  type ControlOptions,
  startControl,
  startProcess,
  startWorker,
  type WorkerProcess,
} from "./control.ts";
import { framePair } from "./frame-pair.ts";

const undo: (() => unknown)[] = [];
let folder = "";
let files = { cert: "", key: "" };

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-bridge-"));
  files = makeCertificate(folder, "control");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function control(options?: ControlOptions): Promise<Control> {
  const started = await startControl(options);
  undo.push(() => started.close());
  return started;
}

function worker(options: Record<string, unknown>): WorkerProcess {
  const started = startWorker(options);
  undo.push(async () => {
    started.kill("SIGKILL");
    await started.exited;
  });
  return started;
}

const registration: DialOptions["registration"] = {
  workerId: "w1",
  name: "",
  labels: {},
  methods: [CREDIT.name],
  version: "0",
  slots: 1,
  secret: undefined,
  claims: [],
};

async function refused(options: Partial<DialOptions> & { port: number }): Promise<CprgError> {
  return await dial({ host: "127.0.0.1", token: "good", registration, ...options }).then(
    ({ stream }) => {
      stream.close();
      throw new Error("it was not refused");
    },
    (error: CprgError) => error,
  );
}

function tls(): ListenerTls {
  return { key: readFileSync(files.key, "utf8"), certificate: readFileSync(files.cert, "utf8") };
}

describe.each([["in the clear", false] as const, ["with TLS", true] as const])("%s", (_, isTls) => {
  const secured = (): ControlOptions => (isTls ? { tls: tls() } : {});
  const trusting = (): Record<string, unknown> => (isTls ? { authorityFile: files.cert } : {});

  test("a worker registers, is called, streams and takes uploads", async () => {
    const { port, next } = await control(secured());
    const { pid, line } = worker({ port, ...trusting() });
    const mux = await next();
    expect(await line()).toMatchObject({ registered: { version: "test", heartbeatSeconds: 5 } });
    const { stat } = await mux.call(FS_STAT, {});
    expect(stat?.name).toBe(`${pid}`);
    let bytes = 0;
    for await (const { stdout } of mux.stream(EXEC_START, { argv: ["100"] })) {
      bytes += stdout?.length ?? 0;
    }
    expect(bytes).toBe(100 * 64 * 1024);
    const chunk = new Uint8Array(100_000);
    const answer = await mux.upload(
      FS_UPLOAD,
      Array.from({ length: 50 }, () => ({ chunk })),
    );
    expect(answer).toMatchObject({ bytes: 5_000_000 });
    mux.close();
    expect(await line()).toEqual({ closed: "well" });
    expect(await mux.closed).toEqual({ error: undefined });
  });

  test("the reason of a close arrives", async () => {
    const { port, next } = await control(secured());
    const { line } = worker({ port, ...trusting() });
    const mux = await next();
    await line();
    mux.close(new CprgError("unauthenticated", "revoked", { reason: "TOKEN_REVOKED" }));
    expect(await line()).toEqual({
      closed: { code: "unauthenticated", reason: "TOKEN_REVOKED" },
    });
  });

  test("a worker that is killed ends its calls as unavailable", async () => {
    const { port, next } = await control(secured());
    const { kill } = worker({ port, ...trusting() });
    const mux = await next();
    const items = mux.stream(EXEC_START, { argv: ["1000000"] })[Symbol.asyncIterator]();
    await items.next();
    kill("SIGKILL");
    const read = async (): Promise<never> => {
      for (;;) if ((await items.next()).done) throw new Error("it ended well");
    };
    expect(await read().catch((error) => error)).toMatchObject({ code: "unavailable" });
    expect((await mux.closed).error?.code).toBe("unavailable");
  });
});

describe("refusals come before any frame, with their reason", () => {
  test("a bad token", async () => {
    const { port } = await control();
    expect(await refused({ port, token: "bad" })).toMatchObject({
      code: "unauthenticated",
      reason: "BAD_TOKEN",
      message: "no such token",
    });
  });

  test("what admit() throws", async () => {
    const { port } = await control({
      admit: () => {
        throw new CprgError("permission_denied", "w1 is another's", { reason: "ID_TAKEN" });
      },
    });
    expect(await refused({ port })).toMatchObject({
      code: "permission_denied",
      reason: "ID_TAKEN",
    });
  });

  test("a bug of admit() is internal, and says nothing", async () => {
    const bugs: unknown[] = [];
    const { port } = await control({
      admit: () => {
        throw new TypeError("secret");
      },
      onBug: (error) => void bugs.push(error),
    });
    const error = await refused({ port });
    expect(bugs).toEqual([new TypeError("secret")]);
    expect(error).toMatchObject({ code: "internal", message: "internal error" });
  });

  test("no listener, and a listener that is no control plane", async () => {
    const { port, close } = await startControl();
    await close();
    expect(await refused({ port })).toMatchObject({ code: "unavailable", retryable: true });
  });
});

test("the Connect protocol carries the same frames and statuses", async () => {
  const { port, next } = await control();
  const baseUrl = `http://127.0.0.1:${port}`;
  const client = createClient(
    WorkerBridge,
    createConnectTransport({
      baseUrl,
      httpVersion: "2",
      useBinaryFormat: true,
      acceptCompression: [],
    }),
  );
  const open = (token: string) => {
    const queue = framePair();
    const outgoing = async function* () {
      for await (const frame of queue[1].frames) yield envelopeOf(frame);
    };
    const headers = { authorization: `Bearer ${token}`, "x-worker-id": "connect" };
    const told = Promise.withResolvers<Headers>();
    const received = client.connect(outgoing(), { headers, onHeader: told.resolve });
    return { told: told.promise, items: received[Symbol.asyncIterator](), send: queue[0] };
  };
  const refusal = await open("bad")
    .items.next()
    .catch((error: unknown) => error);
  expect(ConnectError.from(refusal)).toMatchObject({
    code: Code.Unauthenticated,
    rawMessage: "[BAD_TOKEN] no such token",
  });
  const { told, items, send } = open("good");
  const first = items.next();
  const mux = await next();
  // Before there is any frame.
  expect((await told).get("x-control-version")).toBe("test");
  const call = mux.call(FS_STAT, {});
  const request = (await first).value;
  expect(request).toMatchObject({ method: FS_STAT.name });
  const answer = { id: request?.id ?? "", method: "", payload: new Uint8Array(0), error: "" };
  await send.send({ ...answer, kind: "response" });
  expect(await call).toEqual({ stat: null });
  mux.close(new CprgError("aborted", "again", { reason: "REPLACED" }));
  const end = await items.next().catch((error: unknown) => error);
  expect(ConnectError.from(end)).toMatchObject({
    code: Code.Aborted,
    rawMessage: "[REPLACED] again",
  });
  send.close();
});

describe("TLS", () => {
  test("a certificate that nobody known signed is refused by the worker", async () => {
    const { port } = await control({ tls: tls() });
    const other = makeCertificate(folder, "other");
    const error = await refused({ port, tls: { authority: readFileSync(other.cert, "utf8") } });
    expect(error.code).toBe("unavailable");
    expect(error.message).toContain("certificate");
  });

  test("a client certificate is asked for, and its name is known", async () => {
    const client = makeCertificate(folder, "worker-7");
    const seen: unknown[] = [];
    const listens = { ...tls(), clientAuthority: readFileSync(client.cert, "utf8") };
    const { port } = await control({
      tls: listens,
      admit: (_registration, _identity, from) => {
        seen.push(from.certificateName);
        throw new CprgError("permission_denied", "seen", { reason: "ID_NOT_ALLOWED" });
      },
    });
    const authority = readFileSync(files.cert, "utf8");
    expect((await refused({ port, tls: { authority } })).code).toBe("unavailable");
    expect(seen).toEqual([]);
    const certificate = readFileSync(client.cert, "utf8");
    const key = readFileSync(client.key, "utf8");
    const error = await refused({ port, tls: { authority, certificate, key } });
    expect(error.reason).toBe("ID_NOT_ALLOWED");
    expect(seen).toEqual(["worker-7"]);
  });
});

describe("a proxy", () => {
  /** Answers CONNECT as told; tunnels if that is 200. */
  async function proxy(answer: string): Promise<{ port: number; asked: string[] }> {
    const asked: string[] = [];
    const server: Server = createServer((near: Socket) => {
      near.once("data", (head) => {
        asked.push(head.toString());
        near.write(answer);
        if (!answer.includes(" 200 ")) return;
        const [, host, port] = /^CONNECT ([^:]+):(\d+)/.exec(head.toString()) ?? [];
        const far = connect(Number(port), host);
        near.pipe(far).pipe(near);
        far.on("error", () => near.destroy());
        near.on("error", () => far.destroy());
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    undo.push(() => server.close());
    return { port: (server.address() as { port: number }).port, asked };
  }

  test.each([[false], [true]])("CONNECT, then everything as without (TLS: %p)", async (isTls) => {
    const { port, next } = await control(isTls ? { tls: tls() } : {});
    const { port: proxyPort, asked } = await proxy("HTTP/1.1 200 OK\r\nvia: test\r\n\r\n");
    const started = worker({
      port,
      proxy: `http://me:p%40ss@127.0.0.1:${proxyPort}`,
      ...(isTls && { authorityFile: files.cert }),
    });
    const mux = await next();
    expect((await mux.call(FS_STAT, {})).stat?.name).toBe(`${started.pid}`);
    expect(asked[0]).toStartWith(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n`);
    expect(asked[0]).toContain(`Basic ${Buffer.from("me:p@ss").toString("base64")}\r\n`);
    expect(asked[0]).not.toContain("good");
    mux.close();
  });

  test("one that refuses, one that is none", async () => {
    for (const [answer, message] of [
      ["HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "answered 407"],
      ["SSH-2.0-OpenSSH_9.2\r\n\r\n", "did not answer in HTTP"],
      ["x".repeat(10_000), "answered without end"],
    ]) {
      const { port: proxyPort } = await proxy(answer ?? "");
      const error = await refused({ port: 7600, proxy: new URL(`http://127.0.0.1:${proxyPort}`) });
      expect(error.code).toBe("unavailable");
      expect(error.message).toContain(message ?? "");
    }
  });
});

describe("a peer that is frozen", () => {
  test("is noticed by the control plane's ping", async () => {
    const { port, next } = await control({ ping: { intervalMs: 50, timeoutMs: 1500 } });
    const started = worker({ port });
    const mux = await next();
    await mux.call(FS_STAT, {});
    started.kill("SIGSTOP");
    const { error } = await mux.closed;
    expect(error?.code).toBe("unavailable");
  });

  test("loses its connection when it does not take the end of its stream", async () => {
    const { port, next } = await control();
    const started = worker({ port });
    const mux = await next();
    const items = mux.stream(EXEC_START, { argv: ["1000000"] })[Symbol.asyncIterator]();
    await items.next();
    started.kill("SIGSTOP");
    mux.close(new CprgError("unauthenticated", "revoked", { reason: "TOKEN_REVOKED" }));
    expect((await mux.closed).error?.reason).toBe("TOKEN_REVOKED");
  });
});

describe("a connection that is half open", () => {
  /** Passes bytes on until it is told to swallow them. */
  async function relay(to: number): Promise<{ port: number; swallow(): void }> {
    const sockets: Socket[] = [];
    let isOpen = true;
    const server = createServer((near) => {
      const far = connect(to, "127.0.0.1");
      sockets.push(near, far);
      near.on("data", (bytes) => void (isOpen && far.write(bytes)));
      far.on("data", (bytes) => void (isOpen && near.write(bytes)));
      for (const socket of [near, far]) socket.on("error", () => undefined);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    undo.push(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    const { port } = server.address() as { port: number };
    const swallow = (): void => {
      isOpen = false;
    };
    return { port, swallow };
  }

  test("is noticed by both sides", async () => {
    const ping = { intervalMs: 50, timeoutMs: 1000 };
    const { port, next } = await control({ ping });
    const between = await relay(port);
    const { stream, peer } = await dial({
      host: "127.0.0.1",
      port: between.port,
      token: "good",
      registration,
      ping,
    });
    const ours = openMux(stream, { handlers: new Handlers(), own: [CREDIT.name], peer });
    const theirs = await next();
    between.swallow();
    expect((await ours.closed).error?.code).toBe("unavailable");
    expect((await theirs.closed).error?.code).toBe("unavailable");
  });
});

requireHost({ programs: ["node"] }).test("a worker on Node is one like any other", async () => {
  const built = await Bun.build({
    entrypoints: [join(import.meta.dir, "../fixtures/bridge-worker.ts")],
    target: "node",
    outdir: folder,
    naming: "worker.mjs",
  });
  expect(built.success).toBe(true);
  const { port, next, close } = await startControl({ tls: tls() });
  const options = { host: "127.0.0.1", port, token: "good", authorityFile: files.cert };
  const started = startProcess(["node", join(folder, "worker.mjs"), JSON.stringify(options)]);
  const mux = await next();
  let bytes = 0;
  for await (const { stdout } of mux.stream(EXEC_START, { argv: ["100"] })) {
    bytes += stdout?.length ?? 0;
  }
  expect(bytes).toBe(100 * 64 * 1024);
  expect(await started.line()).toHaveProperty("registered");
  mux.close(new CprgError("aborted", "again", { reason: "REPLACED" }));
  expect(await started.line()).toEqual({ closed: { code: "aborted", reason: "REPLACED" } });
  await started.exited;
  await close();
});

describe("connections that are no workers", () => {
  test("one that opens no stream is closed", async () => {
    const { port } = await control({ handshakeMs: 50 });
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    session.on("error", () => undefined);
    await new Promise<void>((resolve) => session.once("close", () => resolve()));
  });

  test("another path is not found", async () => {
    const { port } = await control();
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    const stream = session.request({ ":path": "/outrigger.v1.Other/Connect", ":method": "POST" });
    const headers = await new Promise<Record<string, unknown>>((resolve) => {
      stream.once("response", resolve);
    });
    expect(headers[":status"]).toBe(404);
    session.destroy();
  });

  async function ends(socket: Socket): Promise<void> {
    socket.on("error", () => undefined);
    socket.resume();
    await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  }

  test("garbage, HTTP/1.1 and a half preface end; workers go on", async () => {
    const { port, next } = await control();
    for (const text of ["\0\0\0garbage\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"]) {
      const socket = connect(port, "127.0.0.1");
      socket.write(text);
      await ends(socket);
    }
    const half = connect(port, "127.0.0.1");
    half.write("PRI * HTTP/2.0\r\n");
    half.destroy();
    worker({ port });
    const mux = await next();
    await mux.call(FS_STAT, {});
    mux.close();
  });

  test("plain text on a TLS port ends", async () => {
    const { port, next } = await control({ tls: tls() });
    const socket = connect(port, "127.0.0.1");
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    await ends(socket);
    const http1 = connectTls({
      port,
      host: "127.0.0.1",
      ca: readFileSync(files.cert),
      ALPNProtocols: ["http/1.1"],
    });
    await ends(http1);
    worker({ port, authorityFile: files.cert });
    (await next()).close();
  });
});
