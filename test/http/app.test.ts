import { describe, expect, test } from "bun:test";
import { CprgError } from "../../src/core/errors.ts";
import { silentLog } from "../../src/core/log.ts";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { parseKeyList } from "../../src/tenancy/keys.ts";
import { KEY_A, KEY_B, python, requestInit, useApp } from "./fixture.ts";

describe("authentication", () => {
  test.each<[string, Record<string, string>]>([
    ["no header", {}],
    ["an unknown key", { Authorization: "Bearer unknown-key-0123456789" }],
    ["a prefix of a key", { Authorization: `Bearer ${KEY_A.slice(0, -1)}` }],
    ["a longer key", { Authorization: `Bearer ${KEY_A}x` }],
    ["another scheme", { Authorization: `Basic ${KEY_A}` }],
    ["an empty key", { Authorization: "Bearer " }],
    ["two keys", { Authorization: `Bearer ${KEY_A} ${KEY_B}` }],
    ["a huge key", { Authorization: `Bearer ${"x".repeat(10_000)}` }],
  ])("refuses %s with 401 on every path of the API", async (_, headers) => {
    const { ask } = await useApp();
    for (const path of ["/v1/jobs", "/v1/jobs/x", "/v1/status", "/v1/languages", "/v1/nothing"]) {
      const answer = await ask(path, { key: null, headers });
      expect([path, answer.status]).toEqual([path, 401]);
      expect(answer.headers.get("www-authenticate")).toStartWith("Bearer");
      expect(answer.json).toMatchObject({ code: "unauthenticated", status: 401 });
    }
  });

  test("takes a key in the query for nothing but a WebSocket", async () => {
    const { ask } = await useApp();
    expect((await ask(`/v1/jobs?key=${KEY_A}`, { key: null })).status).toBe(401);
    const upgrade = { Connection: "Upgrade", Upgrade: "websocket" };
    const answer = await ask(`/v1/jobs/x/stream?key=${KEY_A}`, { key: null, headers: upgrade });
    expect(answer.status).toBe(404);
    for (const path of ["/v1/status", "/v1/languages", "/v1/jobs"]) {
      const other = await ask(`${path}?key=${KEY_A}`, { key: null, headers: upgrade });
      expect([path, other.status]).toEqual([path, 401]);
    }
  });

  test("takes the scheme in any case", async () => {
    const { ask } = await useApp();
    const headers = { Authorization: `bearer ${KEY_A}` };
    expect((await ask("/v1/status", { key: null, headers })).status).toBe(200);
  });
});

describe("paths without a key", () => {
  test("/ points to the API, /healthz tells the truth", async () => {
    const { ask, jobs, store } = await useApp();
    expect((await ask("/", { key: null })).json).toEqual({
      name: "cprg",
      version: "1.2.3",
      api: "/v1",
      health: "/healthz",
    });
    const health = await ask("/healthz", { key: null });
    expect(health).toMatchObject({ status: 200, json: { ok: true, sandbox: "ns", missing: [] } });
    const trouble = { reason: "DISK_FULL" };
    store.check = () => Promise.reject(new CprgError("resource_exhausted", "full", trouble));
    expect(await ask("/healthz", { key: null })).toMatchObject({
      status: 503,
      json: { ok: false, reason: "DISK_FULL" },
    });
    store.check = async () => undefined;
    expect((await ask("/healthz", { key: null })).json.ok).toBe(true);
    await jobs.stop(0);
    expect(await ask("/healthz", { key: null })).toMatchObject({
      status: 503,
      json: { ok: false, reason: "STOPPING" },
    });
  });
});

describe("/v1/status and /v1/languages", () => {
  test("say what runs and what can run", async () => {
    const { ask, provider, jobs } = await useApp({
      fake: { run: () => new Promise<number>(() => undefined) },
      service: { slots: 3, tenantConcurrency: 1 },
    });
    await ask("/v1/jobs", { body: python("1") });
    await ask("/v1/jobs", { body: python("2") });
    while (provider.open_ === 0) await new Promise((resolve) => setImmediate(resolve));
    expect((await ask("/v1/status")).json).toMatchObject({
      version: "1.2.3",
      instance: "instance-a",
      sandbox: "ns",
      layers: { fake: true },
      missing: [],
      slots: 3,
      tenant_concurrency: 1,
      running: 1,
      queued: 1,
      limits: { defaults: { wall_seconds: 30 }, ceilings: { wall_seconds: 300 } },
    });
    expect((await ask("/v1/languages")).json).toEqual({
      languages: [{ name: "python", version: "3.11.2", executable: "/usr/bin/python3" }],
      next_cursor: null,
    });
    await jobs.stop(0);
  });
});

describe("what is not understood", () => {
  test("unknown parameters are refused", async () => {
    const { ask } = await useApp();
    for (const path of ["/v1/status", "/v1/languages", "/v1/jobs"]) {
      const answer = await ask(`${path}?colour=red`);
      expect(answer).toMatchObject({ status: 400, json: { field: "colour" } });
    }
  });

  test("a name that is twice in a body is refused", async () => {
    const { ask } = await useApp();
    const body = '{"language":"python","code":"1","code":"2"}';
    expect(await ask("/v1/jobs", { body })).toMatchObject({ status: 400, json: { field: "code" } });
  });
});

test("/v1/status counts a tenant's own jobs, and all for an admin", async () => {
  const adminKey = "admin-key-0123456789";
  const ring = new KeyRing([
    ...parseKeyList(`a:${KEY_A},b:${KEY_B}`, { role: "tenant", source: "CPRG_API_KEYS" }),
    ...parseKeyList(`root:${adminKey}`, { role: "admin", source: "CPRG_ADMIN_KEYS" }),
  ]);
  const { ask, provider, jobs } = await useApp({
    fake: { run: () => new Promise<number>(() => undefined) },
    service: { slots: 1 },
    app: { keys: ring },
  });
  await ask("/v1/jobs", { body: python("1") });
  while (provider.open_ === 0) await new Promise((resolve) => setImmediate(resolve));
  await ask("/v1/jobs", { body: python("2") });
  await ask("/v1/jobs", { body: python("3"), key: KEY_B });
  for (const [key, running, queued] of [
    [KEY_A, 1, 1],
    [KEY_B, 0, 1],
    [adminKey, 1, 2],
  ] as const) {
    expect((await ask("/v1/status", { key })).json).toMatchObject({ running, queued });
  }
  await jobs.stop(0);
});

describe("waiting requests", () => {
  test("outlive the listener's idle timeout, and only while they wait", async () => {
    const { app, ask } = await useApp();
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const seconds: number[] = [];
    const listener = {
      upgrade: () => false,
      setIdleTimeout: (_: Request, bound: number) => seconds.push(bound),
    };
    const init = requestInit({});
    await app.request(`/v1/jobs/${json.job_id}/result`, init, { listener });
    expect(seconds).toEqual([0, 60]);
    // A body has a deadline of its own too.
    seconds.length = 0;
    await app.request("/v1/jobs", requestInit({ body: python("1") }), { listener });
    expect(seconds).toEqual([0, 60]);
    await app.request(`/v1/jobs/${json.job_id}`, { ...init, method: "DELETE" }, { listener });
    expect(seconds).toEqual([0, 60, 0, 60]);
  });
});

describe("every answer", () => {
  test("is kept by nobody and is what it says it is", async () => {
    const { ask } = await useApp();
    for (const path of ["/", "/healthz", "/v1/status", "/v1/jobs", "/v1/jobs/x", "/nothing"]) {
      const { headers } = await ask(path);
      expect([path, headers.get("x-content-type-options")]).toEqual([path, "nosniff"]);
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("x-request-id")).not.toBeNull();
    }
  });
});

describe("problems", () => {
  test("404 and 405 are problems, and 405 names the methods", async () => {
    const { ask } = await useApp();
    expect(await ask("/v1/nothing")).toMatchObject({
      status: 404,
      json: { code: "not_found", reason: "PATH_NOT_FOUND", status: 404, title: "Not Found" },
    });
    expect((await ask("/nothing", { key: null })).status).toBe(404);
    const wrong = await ask("/v1/jobs/x/result", { method: "DELETE" });
    expect(wrong).toMatchObject({ status: 405, json: { reason: "METHOD_NOT_ALLOWED" } });
    expect(wrong.headers.get("allow")).toBe("GET");
    const put = await ask("/v1/jobs", { method: "PUT", body: "x" });
    expect(put.headers.get("allow")).toBe("GET, POST");
  });

  test("an unknown error is a 500 that shows nothing and is logged under its request id", async () => {
    const records: unknown[] = [];
    const log = { ...silentLog, error: (...record: unknown[]) => records.push(record) };
    const { ask, store } = await useApp({ app: { log } });
    store.jobs.list = () => Promise.reject(new Error("secret path /var/lib"));
    const answer = await ask("/v1/jobs");
    expect(answer).toMatchObject({ status: 500, json: { code: "internal" } });
    expect(answer.text).not.toContain("secret");
    const requestId = answer.headers.get("x-request-id");
    expect(answer.json.request_id).toBe(requestId);
    expect(records).toMatchObject([["request failed", { request_id: requestId }]]);
  });

  test("every request is logged once, without its query", async () => {
    const records: unknown[] = [];
    const log = { ...silentLog, info: (...record: unknown[]) => records.push(record) };
    const { ask } = await useApp({ app: { log } });
    const answer = await ask("/v1/jobs?limit=1");
    await ask(`/v1/jobs?key=${KEY_A}`, { key: null });
    expect(records).toEqual([
      [
        "request",
        {
          request_id: answer.headers.get("x-request-id"),
          method: "GET",
          path: "/v1/jobs",
          status: 200,
          duration_ms: expect.any(Number),
          tenant: "a",
        },
      ],
      ["request", expect.objectContaining({ status: 401, tenant: null, path: "/v1/jobs" })],
    ]);
    expect(JSON.stringify(records)).not.toContain(KEY_A);
  });

  test("a full disk is 507", async () => {
    const { ask, store } = await useApp();
    store.jobs.insert = () =>
      Promise.reject(new CprgError("resource_exhausted", "Cannot store", { reason: "DISK_FULL" }));
    expect((await ask("/v1/jobs", { body: python("1") })).status).toBe(507);
  });
});

test("a cursor is of one list, and exactly what that list gave", async () => {
  const { ask } = await useApp();
  for (let count = 0; count < 3; count += 1) {
    await ask("/v1/jobs", { body: python("1") });
    await ask("/v1/sandboxes", { body: {} });
  }
  const cursorOf = async (list: string) =>
    (await ask(`/v1/${list}?limit=1`)).json.next_cursor as string;
  const [jobs, sandboxes] = [await cursorOf("jobs"), await cursorOf("sandboxes")];
  const status = async (list: string, cursor: string) =>
    (await ask(`/v1/${list}?cursor=${encodeURIComponent(cursor)}`)).status;
  expect([await status("jobs", jobs), await status("sandboxes", sandboxes)]).toEqual([200, 200]);
  for (const wrong of [
    sandboxes,
    `${jobs}A`,
    `${jobs}=`,
    `${jobs}!`,
    jobs.slice(5),
    jobs.slice(0, -1),
    "",
  ]) {
    expect([wrong, await status("jobs", wrong)]).toEqual([wrong, 400]);
  }
  expect(await status("sandboxes", jobs)).toBe(400);
});
