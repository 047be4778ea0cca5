// Keys, rates and the audit log of the compiled binary.

import { expect } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { call, type Home, makeHome } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";

const { test } = requireHost({ root: true, cgroup: true });

const sleeper = {
  language: "python",
  code: "import time; print('ready', flush=True); time.sleep(60)",
};

async function statusOf(server: Serving, path: string, key: string, init: RequestInit = {}) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  return (await fetch(`${server.url}${path}`, { ...init, headers })).status;
}

/** Makes a key and returns it. */
async function made(home: Home, words: readonly string[], env = {}): Promise<string> {
  const ended = await call(["key", "create", ...words], { env: { ...home.env, ...env } });
  expect(ended).toMatchObject({ code: 0, err: expect.stringContaining("only now") });
  expect(ended.out).toMatch(/^cprg_[0-9a-f]{64}\n$/);
  return ended.out.trim();
}

async function listed(home: Home, env = {}): Promise<Record<string, unknown>[]> {
  const ended = await call(["key", "list", "--json"], { env: { ...home.env, ...env } });
  expect(ended).toMatchObject({ code: 0, err: "" });
  return JSON.parse(ended.out).keys;
}

/** The bytes of every file of the data directory. */
function storedText(home: Home): string {
  const entries = readdirSync(home.dataDir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name !== "api-key");
  return files
    .map(({ parentPath, name }) => readFileSync(join(parentPath, name), "latin1"))
    .join("\n");
}

test("keys are made without a server, managed over HTTP while it runs, and leave no trace", async () => {
  using home = makeHome();
  const early = await made(home, ["--tenant", "early", "--ceilings", "pids=7"]);
  let key = "";
  let log = "";
  {
    await using server = await serve(home);
    const env = { CPRG_SERVER: server.url };
    expect(await statusOf(server, "/v1/jobs", early)).toBe(200);
    expect(await statusOf(server, "/v1/keys", early)).toBe(403);
    key = await made(home, ["--tenant", "acme", "--name", "ci"], env);
    const body = JSON.stringify(sleeper);
    const submitted = await fetch(`${server.url}/v1/jobs`, {
      method: "POST",
      body,
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    });
    const { job_id: id } = (await submitted.json()) as { job_id: string };
    const url = `${server.url}/v1/jobs/${id}/stream`.replace(/^http/, "ws");
    const socket = new WebSocket(url, { headers: { Authorization: `Bearer ${key}` } });
    await new Promise((resolve) => socket.addEventListener("message", resolve, { once: true }));
    const closed = new Promise<number>((resolve) => {
      socket.addEventListener("close", ({ code }) => resolve(code));
    });
    const found = (await listed(home, env)).find(({ name }) => name === "ci");
    const keyId = String(found?.["key_id"]);
    const revoked = await call(["key", "revoke", keyId], { env: { ...home.env, ...env } });
    expect(revoked).toMatchObject({ code: 0, err: `revoked ${keyId}\n` });
    expect(await closed).toBe(1008);
    expect(await statusOf(server, "/v1/jobs", key)).toBe(401);
    expect(await statusOf(server, `/v1/jobs/${key}`, server.key)).toBe(404);
    const path = join(home.path, "audit.ndjson");
    const audit = await call(["audit", "--export", path], { env: { ...home.env, ...env } });
    expect(audit.code).toBe(0);
    const verified = await call(["verify", path], { env: home.env });
    expect(verified).toMatchObject({ code: 0, out: expect.stringContaining("audit:server") });
    const actions = readFileSync(path, "utf8").matchAll(/"action":"([a-z.]+)"/g);
    expect([...actions].map(([, action]) => action)).toEqual([
      "key.create",
      "server.start",
      "key.create",
      "job.submit",
      "key.revoke",
      "auth.refuse",
    ]);
    const cmdline = readFileSync(`/proc/${server.process.pid}/cmdline`, "latin1");
    expect(await server.stop()).toBe(0);
    log = `${await server.out.rest()}${await server.err.rest()}${readFileSync(path)}${cmdline}`;
  }
  for (const secret of [early, key]) {
    expect(log).not.toContain(secret.slice(5));
    expect(storedText(home)).not.toContain(secret.slice(5));
  }
  const keys = await listed(home);
  expect(keys.map(({ tenant, revoked_at }) => [tenant, revoked_at === null])).toEqual([
    ["early", true],
    ["acme", false],
  ]);
}, 60_000);

test("a server that others can reach starts with a stored key alone, and makes none", async () => {
  using home = makeHome();
  const env = { ...home.env, CPRG_ENV: "production" };
  await made(home, ["--role", "admin"]);
  const [found] = await listed(home);
  const checked = await call(["serve", "--check"], { env });
  expect(checked.code).toBe(0);
  await call(["key", "revoke", String(found?.["key_id"])], { env: home.env });
  const refused = await call(["serve", "--addr", "127.0.0.1:0"], { env });
  expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("no key is set") });
  expect(readdirSync(home.dataDir)).not.toContain("api-key");
}, 60_000);

test("of 500 requests at once 120 pass, and Retry-After is the truth", async () => {
  using home = makeHome();
  await using server = await serve(home, { env: { CPRG_RATE_PER_MIN: "120" } });
  const ask = async () => await server.request("/v1/languages");
  const answers = await Promise.all(Array.from({ length: 500 }, ask));
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(120);
  expect(answers.filter(({ status }) => status === 429)).toHaveLength(380);
  // Where the number has just become smaller, it is nearly exact.
  const first = await retryAfter(ask);
  let now = first;
  while (now === first) now = await retryAfter(ask);
  await Bun.sleep((now - 1) * 1000);
  expect((await ask()).status).toBe(429);
  await Bun.sleep(1000);
  expect((await ask()).status).toBe(200);
  expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
}, 90_000);

async function retryAfter(ask: () => Promise<Response>): Promise<number> {
  const response = await ask();
  expect(response.status).toBe(429);
  return Number(response.headers.get("retry-after"));
}
