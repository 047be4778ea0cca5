// Clients that want to break the server, on the running executable: each gets the code that it
// deserves, memory stays within a bound, and others are answered meanwhile.
// CPRG_IDLE_SOCKETS sets how many idle WebSockets there are.

import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { connectWithoutReading } from "../http/ws-client.ts";
import { type Home, makeHome, readText } from "./cprg.ts";
import { type RawClient, rawClient, requestHead, textFrame } from "./raw-client.ts";
import { statusFields } from "./sandbox-processes.ts";
import { type Serving, serve } from "./server.ts";

const { test } = requireHost({ root: true });

const KIB = 1024;
const MIB = 1024 * KIB;
const GROWTH_MAX = 200 * MIB;
const TIMEOUT_MS = 300_000;
const IDLE_SOCKETS = Number(process.env["CPRG_IDLE_SOCKETS"] ?? 500);
/** Sockets that are opened at a time. */
const OPENED_AT_ONCE = 50;
/** Heads that may be cut off before one is answered. */
const HEAD_TRIES = 20;
/** STREAMS_TENANT_MAX. */
const STREAMS_TENANT_MAX = 250;

/** A job that runs until it is cancelled. */
const SLEEPER = {
  argv: ["/bin/sleep", "250"],
  limits: { wall_seconds: 280 },
  kill_grace_seconds: 0,
};

/** Peak resident set since it was last reset, in bytes (proc_pid_status(5)). */
function peakBytes(pid: number): number {
  return Number.parseInt(statusFields(pid)["VmHWM"] ?? "", 10) * KIB;
}

/** How long another client asks before an attack. */
const IDLE_MS = 2000;

/** Another tenant's client, of a process of its own, which asks without a pause until it is stopped. */
async function bystander(server: Serving) {
  const body = JSON.stringify({ tenant: "bystander" });
  const made = await server.request("/v1/keys", { method: "POST", body });
  const { key } = (await made.json()) as { key: string };
  const url = `${server.url}/v1/status`;
  const fixture = join(import.meta.dir, "../fixtures/bystander.ts");
  const child = Bun.spawn([process.execPath, fixture, url, key], {
    stdin: "pipe",
    stdout: "pipe",
  });
  const out = readText(child.stdout);
  return {
    asks: out.until(/asking/),
    /** Ends it; every request was answered with 200. The slowest hundredth took so long, in ms. */
    p99: async (): Promise<number> => {
      await child.stdin.end();
      const { statuses, p99Ms } = JSON.parse((await out.rest()).split("\n")[1] ?? "");
      expect(Object.keys(statuses)).toEqual(["200"]);
      return p99Ms;
    },
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

/** The slowest hundredth of another client's answers while something goes on, in milliseconds. */
async function beside(server: Serving, act: () => Promise<unknown>): Promise<number> {
  await using other = await bystander(server);
  await other.asks;
  await act();
  return await other.p99();
}

/** Attacks a server that has warmed up, beside another client. */
async function attack(
  act: (server: Serving, home: Home) => Promise<void>,
  options: { readonly words?: readonly string[] } = {},
): Promise<void> {
  using home = makeHome();
  await using server = await serve(home, { words: ["--log", "error", ...(options.words ?? [])] });
  const { pid } = server.process;
  const id = await server.submit({ argv: ["/bin/true"] });
  await (await server.request(`/v1/jobs/${id}/result`)).json();
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
  const baseline = peakBytes(pid);
  const idle = await beside(server, () => Bun.sleep(IDLE_MS));
  const attacked = await beside(server, () => act(server, home));
  console.log(`others' p99: ${idle.toFixed(1)} ms idle, ${attacked.toFixed(1)} ms beside`);
  const growth = peakBytes(pid) - baseline;
  console.log(`baseline ${baseline / MIB} MiB, peak ${(growth / MIB).toFixed(1)} MiB above it`);
  expect(baseline).toBeGreaterThan(0);
  expect(growth).toBeLessThanOrEqual(GROWTH_MAX);
}

function post(server: Serving, headers: Readonly<Record<string, string | number>>): RawClient {
  const client = rawClient(server.url);
  const authorization = `Bearer ${server.key}`;
  const type = { "Content-Type": "application/json" };
  client.send(requestHead("POST /v1/jobs", { Authorization: authorization, ...type, ...headers }));
  return client;
}

test(
  "bodies of 100 MB are refused, declared or not",
  async () => {
    await attack(async (server) => {
      const declared = Array.from({ length: 10 }, () => post(server, { "Content-Length": 1e8 }));
      for (const client of declared) {
        client.send(new Uint8Array(MIB));
        expect(await client.status).toBe(413);
        client[Symbol.dispose]();
      }
      const chunk = Buffer.concat([
        Buffer.from("100000\r\n"),
        new Uint8Array(MIB),
        Buffer.from("\r\n"),
      ]);
      for (let round = 0; round < 3; round += 1) {
        using client = post(server, { "Transfer-Encoding": "chunked" });
        for (let sent = 0; sent < 100 && !client.isAnswered; sent += 1) {
          client.send(chunk);
          if (client.socket.writableLength > 8 * MIB) await drained(client);
        }
        expect(await client.status).toBe(413);
      }
    });
  },
  TIMEOUT_MS,
);

/** Resolves when the socket took what waits, or is over. */
async function drained({ socket, closed, status }: RawClient): Promise<void> {
  const took = new Promise<void>((resolve) => socket.once("drain", () => resolve()));
  await Promise.race([took, closed, status.then(() => undefined)]);
}

/**
 * A head that is too large is refused with 431. The server does not read the rest of it, so the
 * kernel may reset the connection before the client has read why (RFC 9112 section 9.6).
 */
async function refusedHead(
  server: Serving,
  headers: Readonly<Record<string, string>>,
): Promise<void> {
  let status: number | null = null;
  for (let tries = 0; tries < HEAD_TRIES && status === null; tries += 1) {
    using client = post(server, { ...headers, "Content-Length": 2 });
    client.send("{}");
    status = await client.status;
  }
  expect(status).toBe(431);
}

test(
  "deep JSON is 400, 300 headers and long ones are refused",
  async () => {
    await attack(async (server) => {
      for (const body of [
        "[".repeat(1_000_000),
        '{"a":'.repeat(200_000),
        `"${"\\u0000".repeat(9)}`,
      ]) {
        using client = post(server, { "Content-Length": body.length });
        client.send(body);
        expect(await client.status).toBe(400);
      }
      const many = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`X-${n}`, "1"]));
      for (const headers of [many, { "X-Long": "x".repeat(100_000) }]) {
        await refusedHead(server, headers);
      }
    });
  },
  TIMEOUT_MS,
);

test(
  "slow bodies and half-closed sockets hold nobody up, and leave nothing",
  async () => {
    await attack(async (server) => {
      const slow = Array.from({ length: 100 }, () => post(server, { "Content-Length": 1000 }));
      for (const client of slow) client.send("{");
      const half = Array.from({ length: 100 }, () => {
        const client = rawClient(server.url);
        const Authorization = `Bearer ${server.key}`;
        client.send(requestHead("GET /v1/status", { Authorization }));
        client.socket.end();
        return client;
      });
      for (const client of half) expect([200, null]).toContain(await client.status);
      const cut = Array.from({ length: 100 }, () => post(server, { "Content-Length": 1000 }));
      for (const client of cut) {
        client.send("{");
        client.socket.end();
      }
      for (const client of cut) expect([400, 408, 499, null]).toContain(await client.status);
      for (const client of [...slow, ...half, ...cut]) client[Symbol.dispose]();
      const { jobs } = (await (await server.request("/v1/jobs")).json()) as { jobs: unknown[] };
      expect(jobs).toHaveLength(1);
    });
  },
  TIMEOUT_MS,
);

test(
  "WebSockets that flood are heard by nobody, and cut off, as where a message is too long",
  async () => {
    await attack(async (server) => {
      const id = await server.submit(SLEEPER);
      const url = new URL(`${server.url}/v1/jobs/${id}/stream`);
      const floods = await Promise.all(
        Array.from({ length: 10 }, () => connectWithoutReading(url, server.key)),
      );
      // The server ends them in the middle.
      for (const socket of floods) socket.on("error", () => socket.destroy());
      const frame = textFrame(1000);
      for (let count = 0; count < 2000; count += 1)
        for (const socket of floods) socket.write(frame);
      const large = await connectWithoutReading(url, server.key);
      const over = new Promise<void>((resolve) => large.once("close", () => resolve()));
      large.on("error", () => large.destroy());
      large.resume();
      large.write(textFrame(60_000));
      await over;
      for (const socket of floods) socket.destroy();
      expect((await server.request(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(200);
    });
  },
  TIMEOUT_MS,
);

test(
  `${IDLE_SOCKETS} idle WebSockets: a tenant has its places, the rest is refused`,
  async () => {
    await attack(async (server) => {
      const id = await server.submit(SLEEPER);
      const url = new URL(`${server.url}/v1/jobs/${id}/stream`);
      const open: Awaited<ReturnType<typeof connectWithoutReading>>[] = [];
      const refusals: string[] = [];
      for (let made = 0; made < IDLE_SOCKETS; made += OPENED_AT_ONCE) {
        const opened = Array.from({ length: OPENED_AT_ONCE }, async () => {
          try {
            open.push(await connectWithoutReading(url, server.key));
          } catch (error) {
            refusals.push(String(error));
          }
        });
        await Promise.all(opened);
      }
      expect(open).toHaveLength(Math.min(IDLE_SOCKETS, STREAMS_TENANT_MAX));
      expect(refusals.filter((text) => !text.includes("HTTP/1.1 503"))).toEqual([]);
      for (const socket of open) socket.destroy();
      expect((await server.request(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(200);
    });
  },
  TIMEOUT_MS,
);

test(
  "readers that never read cost no memory, whatever they do not read",
  async () => {
    await attack(async (server) => {
      const code =
        "import os\nos.makedirs('out', exist_ok=True)\nopen('out/big','wb').write(b'x'*60_000_000)\nprint('y'*30_000_000)";
      const limits = { output_kb: 32_768, disk_mb: 128, mem_mb: 512, file_mb: 64 };
      const id = await server.submit({ language: "python", code, limits });
      const result = (await (await server.request(`/v1/jobs/${id}?`)).json()) as object;
      expect(result).toHaveProperty("job_id", id);
      await (await server.request(`/v1/jobs/${id}/result?wait_seconds=120`)).arrayBuffer();
      const clients = ["replay", "result", "events", "files/big"].flatMap((path) =>
        Array.from({ length: 5 }, () => {
          const client = rawClient(server.url);
          const Authorization = `Bearer ${server.key}`;
          client.send(requestHead(`GET /v1/jobs/${id}/${path}`, { Authorization }));
          client.socket.once("data", () => client.socket.pause());
          return client;
        }),
      );
      for (const client of clients) expect(await client.status).toBe(200);
      // The answers go as far as buffers take them: asking others meanwhile shows where that ends.
      for (let asked = 0; asked < 50; asked += 1) await (await server.request("/v1/status")).text();
      for (const client of clients) client[Symbol.dispose]();
    });
  },
  TIMEOUT_MS,
);

test(
  "hundreds of readers that never read have a tenant's places, and cost little",
  async () => {
    await attack(async (server) => {
      const limits = { output_kb: 32_768 };
      const id = await server.submit({ language: "python", code: "print('y'*30_000_000)", limits });
      await (await server.request(`/v1/jobs/${id}/result?wait_seconds=120`)).arrayBuffer();
      const clients = Array.from({ length: STREAMS_TENANT_MAX + 20 }, (_, index) => {
        const client = rawClient(server.url);
        const Authorization = `Bearer ${server.key}`;
        const end = index % 2 === 0 ? "replay" : "events";
        client.send(requestHead(`GET /v1/jobs/${id}/${end}`, { Authorization }));
        client.socket.once("data", () => client.socket.pause());
        return client;
      });
      const statuses = await Promise.all(clients.map(({ status }) => status));
      expect(statuses.filter((status) => status === 200)).toHaveLength(STREAMS_TENANT_MAX);
      expect(statuses.filter((status) => status === 503)).toHaveLength(20);
      for (let asked = 0; asked < 50; asked += 1) await (await server.request("/v1/status")).text();
      for (const client of clients) client[Symbol.dispose]();
    });
  },
  TIMEOUT_MS,
);

test(
  "a page that a program leaves is a file to save",
  async () => {
    await attack(async (server) => {
      const code =
        "import os\nos.makedirs('out/a', exist_ok=True)\nopen('out/a/x.html','w').write('<script>1</script>')\nos.symlink('/etc/passwd','out/link')";
      const id = await server.submit({ language: "python", code });
      await (await server.request(`/v1/jobs/${id}/result`)).json();
      const list = (await (await server.request(`/v1/jobs/${id}/files`)).json()) as {
        files: unknown;
      };
      expect(list.files).toMatchObject([{ path: "a/x.html", size: 18 }]);
      const file = await server.request(`/v1/jobs/${id}/files/a/x.html`);
      expect(await file.text()).toBe("<script>1</script>");
      expect(file.headers.get("content-type")).toBe("application/octet-stream");
      expect(file.headers.get("content-disposition")).toStartWith("attachment");
      expect(file.headers.get("content-security-policy")).toContain("sandbox");
      expect(file.headers.get("x-content-type-options")).toBe("nosniff");
      expect((await server.request(`/v1/jobs/${id}/files/link`)).status).toBe(404);
    });
  },
  TIMEOUT_MS,
);
