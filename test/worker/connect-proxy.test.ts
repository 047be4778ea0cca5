// `cprg worker` through an HTTP proxy: CONNECT and nothing else reaches the control plane, and a proxy
// that refuses, hangs or talks rubbish is waited out.

import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, connect as dialTcp, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { until } from "./ground.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  TOKEN,
  type WorkerProcess,
} from "./process.ts";

const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

/** What a proxy does with a CONNECT. */
type Manner = "tunnel" | "hang" | "close" | { readonly say: string };

interface ConnectProxy {
  readonly port: number;
  manner: Manner;
  /** Heads of what was asked. */
  readonly asked: string[];
  /** Everything that went from workers to the control plane. */
  readonly sent: Buffer[];
}

/** Whatever host is asked for, it knows one port. */
async function startConnectProxy(target: number, manner: Manner = "tunnel"): Promise<ConnectProxy> {
  const sockets = new Set<Socket>();
  const proxy: { port: number } & ConnectProxy = { port: 0, manner, asked: [], sent: [] };
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => sockets.delete(socket));
  };
  const server = createServer((near) => {
    keep(near);
    near.once("data", (head) => {
      proxy.asked.push(head.toString("latin1"));
      if (proxy.manner === "hang") return;
      if (proxy.manner === "close") near.destroy();
      else if (proxy.manner !== "tunnel") near.write(proxy.manner.say);
      else {
        near.write("HTTP/1.1 200 Connection established\r\n\r\n");
        const far = dialTcp(target, "127.0.0.1");
        keep(far);
        near.on("data", (bytes) => proxy.sent.push(Buffer.from(bytes)));
        near.pipe(far).pipe(near);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  undo.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  proxy.port = (server.address() as { port: number }).port;
  return proxy;
}

async function plane(options?: Parameters<typeof startPlane>[0]): Promise<Plane> {
  const started = await startPlane(options);
  undo.push(() => started.close());
  return started;
}

interface WorkerOf {
  readonly env: Record<string, string>;
  readonly words?: readonly string[];
  readonly host?: string;
}

function worker(port: number, { env, words = [], host }: WorkerOf): WorkerProcess {
  const started = startWorkerProcess(port, {
    words: ["--token", TOKEN, ...words],
    env,
    ...(host === undefined ? {} : { host }),
  });
  undo.push(() => started.end());
  return started;
}

const claimOf = (there: Plane): Promise<ClaimLink> =>
  there.registry.claim({ taskId: "t1", epoch: 1 });

async function sh(claimed: ClaimLink, script: string): Promise<string> {
  const lease = new WorkerLease(claimed, {});
  return (await lease.invoke({ executable: "sh", arguments: ["-c", script] })).stdout;
}

test("a host that only the proxy can reach is reached, and no program hears of the proxy", async () => {
  const there = await plane();
  const proxy = await startConnectProxy(there.port);
  const env = { HTTPS_PROXY: `http://me:p%40ss@127.0.0.1:${proxy.port}` };
  worker(there.port, { env, host: "plane.invalid" });
  const claimed = await claimOf(there);
  expect(await sh(claimed, "env")).not.toMatch(/proxy|p%40ss|p@ss/i);
  await claimed.release();
  expect(proxy.asked).toHaveLength(1);
  expect(proxy.asked[0]).toStartWith(`CONNECT plane.invalid:${there.port} HTTP/1.1\r\n`);
  const basic = Buffer.from("me:p@ss").toString("base64");
  expect(proxy.asked[0]).toContain(`Proxy-Authorization: Basic ${basic}\r\n`);
  expect(proxy.asked[0]).not.toContain(TOKEN);
});

test("over TLS the proxy carries what it cannot read", async () => {
  const folder = mkdtempSync(join(tmpdir(), "cprg-proxy-"));
  undo.push(() => rmSync(folder, { recursive: true, force: true }));
  const files = makeCertificate(folder, "control");
  const read = (path: string): string => readFileSync(path, "utf8");
  const there = await plane({ tls: { key: read(files.key), certificate: read(files.cert) } });
  const proxy = await startConnectProxy(there.port);
  const env = { https_proxy: `http://127.0.0.1:${proxy.port}` };
  worker(there.port, { env, words: ["--tls-ca", files.cert] });
  const claimed = await claimOf(there);
  expect(await sh(claimed, "echo said-in-secret")).toBe("said-in-secret\n");
  await claimed.release();
  const sent = Buffer.concat(proxy.sent);
  expect(sent.length).toBeGreaterThan(100);
  for (const word of [TOKEN, "authorization", "said-in-secret"])
    expect(sent.includes(word)).toBe(false);
});

test("NO_PROXY goes past it", async () => {
  const there = await plane();
  const proxy = await startConnectProxy(there.port, "close");
  const env = { HTTPS_PROXY: `http://127.0.0.1:${proxy.port}`, NO_PROXY: "example.org,127.0.0.1" };
  worker(there.port, { env });
  const claimed = await claimOf(there);
  expect(await sh(claimed, "echo direct")).toBe("direct\n");
  await claimed.release();
  expect(proxy.asked).toEqual([]);
});

const BAD: Readonly<Record<string, { manner: Manner; said: string }>> = {
  "one that wants a password": {
    manner: { say: "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n" },
    said: "answered 407",
  },
  "one that forbids": { manner: { say: "HTTP/1.1 403 Forbidden\r\n\r\n" }, said: "answered 403" },
  "one that talks rubbish": { manner: { say: "SSH-2.0-rubbish\r\n\r\n" }, said: "in HTTP" },
  "one without end": { manner: { say: "x".repeat(10_000) }, said: "answered without end" },
  "one that closes": { manner: "close", said: "closed the connection" },
  "one that says nothing": { manner: "hang", said: "does not answer" },
};

for (const [name, { manner, said }] of Object.entries(BAD)) {
  test(`${name}: dialled again until it is better`, async () => {
    const there = await plane();
    const proxy = await startConnectProxy(there.port, manner);
    const env = { HTTPS_PROXY: `http://127.0.0.1:${proxy.port}` };
    const one = worker(there.port, { env });
    // The second attempt shows that it did not stop at the first.
    await until(() => proxy.asked.length >= 2);
    proxy.manner = "tunnel";
    const claimed = await claimOf(there);
    expect(await sh(claimed, "echo through")).toBe("through\n");
    await claimed.release();
    one.kill("SIGTERM");
    expect(await one.exited).toBe(0);
    expect(await one.said).toContain(said);
  }, 120_000);
}

test("with a bound on attempts it says why, and stops with 4", async () => {
  const there = await plane();
  const proxy = await startConnectProxy(there.port, { say: "HTTP/1.1 502 Bad Gateway\r\n\r\n" });
  const env = { HTTPS_PROXY: `http://127.0.0.1:${proxy.port}` };
  const one = worker(there.port, { env, words: ["--attempts", "2"] });
  expect(await one.exited).toBe(4);
  expect(await one.said).toContain("answered 502");
  expect(proxy.asked).toHaveLength(2);
});

test("a proxy that is no URL is wrong use", async () => {
  const one = worker(7600, { env: { HTTPS_PROXY: "proxy.example:3128" } });
  expect(await one.exited).toBe(2);
});
