// Keys, rates and the audit log over HTTP.

import { describe, expect, test } from "bun:test";
import { createPublicKey } from "node:crypto";
import { silentLog } from "../../src/core/log.ts";
import { verifyExport } from "../../src/core/verify.ts";
import { RateWindows } from "../../src/tenancy/rate-windows.ts";
import { signingKey } from "../jobs/fixture.ts";
import { type Ask, KEY_A, KEY_ADMIN, KEY_B, python, useApp, useServer } from "./fixture.ts";
import { collectStream } from "./ws-client.ts";

const admin = (ask: Ask = {}): Ask => ({ ...ask, key: KEY_ADMIN });

/** A program that runs until it is killed. */
const untilKilled = { run: () => new Promise<number>(() => undefined) };

describe("/v1/keys", () => {
  test("a key is shown once, works at once, and is gone at once", async () => {
    const { ask } = await useApp();
    const body = { tenant: "a", name: "ci", rate_per_min: 50, ceilings: { pids: 7 } };
    const made = await ask("/v1/keys", admin({ body }));
    expect(made).toMatchObject({
      status: 201,
      json: { tenant: "a", role: "tenant", name: "ci", rate_per_min: 50, ceilings: { pids: 7 } },
    });
    const { key, key_id, ...view } = made.json;
    expect(made.headers.get("location")).toBe(`/v1/keys/${key_id}`);
    const own = await ask("/v1/jobs", { body: python("1", { limits: { pids: 50 } }), key });
    expect(own).toMatchObject({ status: 201, json: { tenant: "a", limits: { pids: 7 } } });
    const listed = await ask("/v1/keys", admin());
    expect(listed.json).toEqual({
      keys: [{ ...view, key_id, last_used_at: expect.any(String) }],
      next_cursor: null,
    });
    expect(listed.text).not.toContain(key.slice(10));
    const revoked = await ask(`/v1/keys/${key_id}`, admin({ method: "DELETE" }));
    expect(revoked).toMatchObject({ status: 200, json: { revoked_at: expect.any(String) } });
    expect((await ask("/v1/jobs", { key })).status).toBe(401);
  });

  test("rotation answers with the new key, also to the key that is rotated", async () => {
    const { ask } = await useApp();
    const first = await ask("/v1/keys", admin({ body: { role: "admin", name: "ops" } }));
    const path = `/v1/keys/${first.json.key_id}/rotate`;
    const second = await ask(path, { body: { overlap_seconds: 60 }, key: first.json.key });
    expect(second).toMatchObject({ status: 201, json: { role: "admin", name: "ops" } });
    expect((await ask("/v1/keys", { key: first.json.key })).status).toBe(200);
    const again = `/v1/keys/${second.json.key_id}/rotate`;
    const third = await ask(again, { body: { overlap_seconds: 0 }, key: second.json.key });
    expect(third.status).toBe(201);
    expect((await ask("/v1/keys", { key: second.json.key })).status).toBe(401);
    expect((await ask("/v1/keys", { key: third.json.key })).status).toBe(200);
  });

  test("lists in pages and by tenant", async () => {
    const { ask } = await useApp();
    for (const tenant of ["a", "b", "a", "b", "a"]) {
      await ask("/v1/keys", admin({ body: { tenant } }));
    }
    const ids: string[] = [];
    let cursor = "";
    do {
      const page = await ask(`/v1/keys?limit=2&tenant=a${cursor}`, admin());
      ids.push(...page.json.keys.map(({ key_id }: { key_id: string }) => key_id));
      cursor = page.json.next_cursor === null ? "" : `&cursor=${page.json.next_cursor}`;
    } while (cursor !== "");
    expect(new Set(ids).size).toBe(3);
  });

  test.each<[string, unknown]>([
    ["tenant", { tenant: "no/name" }],
    ["role", { role: "root" }],
    ["rate_per_min", { rate_per_min: 0 }],
    ["expires_in_seconds", { expires_in_seconds: -1 }],
    ["ceilings.pids", { ceilings: { pids: 0 } }],
    ["ceilings.pids", { ceilings: { pids: 1.5 } }],
    ["ceilings.colour", { ceilings: { colour: 1 } }],
    ["colour", { colour: 1 }],
  ])("refuses a bad %s", async (field, body) => {
    const { ask } = await useApp();
    expect(await ask("/v1/keys", admin({ body }))).toMatchObject({ status: 400, json: { field } });
    expect((await ask("/v1/keys", admin())).json.keys).toEqual([]);
  });
});

describe("a revoked key", () => {
  test("loses its streams and its waits within a second; others go on", async () => {
    await using used = await useServer({ fake: untilKilled });
    const made = await used.ask("/v1/keys", admin({ body: { tenant: "a" } }));
    const { key, key_id } = made.json;
    const job = await used.ask("/v1/jobs", { body: python("1"), key });
    const path = `/v1/jobs/${job.json.job_id}`;
    const url = new URL(`${path}/stream`, used.server.url);
    const headers = (of: string) => ({ Authorization: `Bearer ${of}` });
    let isOtherOpen = true;
    const stream = collectStream(url, headers(key));
    const other = collectStream(url, headers(KEY_A)).finally(() => (isOtherOpen = false));
    const wait = used.ask(`${path}/result?wait_seconds=300`, { key });
    while (used.server.openStreams < 2 || used.jobs.waiting < 1) await Bun.sleep(5);
    const startedMs = performance.now();
    await used.ask(`/v1/keys/${key_id}`, admin({ method: "DELETE" }));
    expect((await stream).code).toBe(1008);
    expect(await wait).toMatchObject({ status: 401, json: { reason: "KEY_REVOKED" } });
    expect(performance.now() - startedMs).toBeLessThan(1000);
    expect(isOtherOpen).toBe(true);
    expect(used.server.openStreams).toBe(1);
    await used.jobs.stop(0);
    expect((await other).code).toBe(1000);
  });

  test("loses an answer that is being sent", async () => {
    const chunk = Buffer.alloc(64 * 1024, "x");
    let sent = 0;
    async function* endless() {
      for (;;) {
        sent += 1;
        yield chunk;
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    await using used = await useServer({ app: { exportAudit: endless } });
    const made = await used.ask("/v1/keys", admin({ body: { role: "admin" } }));
    const { key, key_id } = made.json;
    const response = await fetch(new URL("/v1/audit", used.server.url), {
      headers: { Authorization: `Bearer ${key}` },
    });
    const reader = response.body?.getReader();
    await reader?.read();
    await used.ask(`/v1/keys/${key_id}`, admin({ method: "DELETE" }));
    const drain = async () => {
      while (!(await reader?.read())?.done) {}
    };
    await expect(drain()).rejects.toThrow();
    const atEnd = sent;
    await Bun.sleep(20);
    expect(sent).toBeLessThanOrEqual(atEnd + 1);
  });
});

describe("rates", () => {
  test("of 500 requests at once exactly 120 pass; Retry-After is the truth", async () => {
    const clock = { now: 5000.25, monotonicMs: () => clock.now };
    const used = await useApp();
    const rates = new RateWindows({ clock });
    const { ask } = await useApp({ app: { tenancy: { ...used.tenancy, rates } } });
    const answers = await Promise.all(Array.from({ length: 500 }, () => ask("/v1/languages")));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(120);
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused).toHaveLength(380);
    expect(refused[0]?.json).toMatchObject({ reason: "RATE_LIMITED" });
    const retryAfter = Number(refused[0]?.headers.get("retry-after"));
    expect((await ask("/v1/languages", { key: KEY_B })).status).toBe(200);
    expect((await ask("/healthz")).status).toBe(200);
    clock.now += (retryAfter - 1) * 1000;
    expect((await ask("/v1/languages")).status).toBe(429);
    clock.now += 1000;
    expect((await ask("/v1/languages")).status).toBe(200);
  });

  test("requests without a known key and open paths do not count", async () => {
    const used = await useApp();
    const rates = new RateWindows({ perMin: 1 });
    const { ask } = await useApp({ app: { tenancy: { ...used.tenancy, rates } } });
    for (let index = 0; index < 5; index += 1) {
      expect((await ask("/healthz")).status).toBe(200);
      expect((await ask("/v1/status", { key: "unknown-key-0123456789" })).status).toBe(401);
    }
    expect((await ask("/v1/status")).status).toBe(200);
    expect((await ask("/v1/status")).status).toBe(429);
    expect(rates.size).toBe(1);
  });
});

describe("/v1/audit", () => {
  test("says who did what, in a log that verifies", async () => {
    const { ask } = await useApp();
    const made = await ask("/v1/keys", admin({ body: { tenant: "a" } }));
    const { key, key_id } = made.json;
    const job = await ask("/v1/jobs", { body: python("1"), key });
    await ask(`/v1/jobs/${job.json.job_id}/result`, { key });
    await ask(`/v1/jobs/${job.json.job_id}`, { method: "DELETE", key });
    await ask(`/v1/keys/${key_id}`, { method: "DELETE", key });
    await ask(`/v1/keys/${key}`, admin({ method: "DELETE" }));
    await ask(`/v1/keys/${key_id}`, admin({ method: "DELETE" }));
    for (let index = 0; index < 3; index += 1) await ask("/v1/jobs", { key });
    const answer = await ask("/v1/audit", admin());
    expect(answer.headers.get("content-type")).toBe("application/x-ndjson");
    const rows = answer.text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const seal = rows.pop();
    expect(seal).toMatchObject({ kind: "seal", subject: "audit:server", count: rows.length });
    expect(
      rows.map(({ data }) => [data.action, data.key_id, data.tenant, data.object, data.status]),
    ).toEqual([
      ["key.create", "config-3", "root", key_id, 201],
      ["job.submit", key_id, "a", job.json.job_id, 201],
      ["job.cancel", key_id, "a", job.json.job_id, 409],
      ["key.revoke", key_id, "a", key_id, 403],
      ["key.revoke", "config-3", "root", null, 404],
      ["key.revoke", "config-3", "root", key_id, 200],
      ["auth.refuse", null, null, null, 401],
    ]);
    expect(rows.at(-1).data.count).toBe(3);
    expect(rows[0].data).toMatchObject({ outcome: "ok", request_id: expect.any(String) });
    for (const secret of [key.slice(5), KEY_ADMIN]) expect(answer.text).not.toContain(secret);
    const publicKey = createPublicKey(signingKey.publicPem);
    expect(await verifyExport(Buffer.from(answer.text), { publicKey })).toMatchObject({
      ok: true,
      subject: "audit:server",
    });
    const forged = Buffer.from(answer.text.replace('"key.create"', '"key.revoke"'));
    expect(await verifyExport(forged, { publicKey })).toMatchObject({ ok: false });
  });

  test("has each job of a batch, and each that was refused", async () => {
    const { ask } = await useApp();
    const batch = await ask("/v1/jobs/batch", {
      body: { jobs: [python("1"), { language: "none", code: "" }, python("2")] },
    });
    const [first, , last] = batch.json.jobs;
    const rows = (await ask("/v1/audit", admin())).text.trim().split("\n");
    const records = rows.map((line) => JSON.parse(line).data).slice(0, -1);
    expect(
      records.map(({ action, object, outcome, status }) => [action, object, outcome, status]),
    ).toEqual([
      ["job.submit", first.job_id, "ok", 201],
      ["job.submit", null, "refused", 400],
      ["job.submit", last.job_id, "ok", 201],
    ]);
  });
});

test("keys are in no log and no error, escaped or not", async () => {
  const lines: string[] = [];
  const keep = (message: string, fields: unknown) => lines.push(JSON.stringify([message, fields]));
  const log = { ...silentLog, debug: keep, info: keep, warn: keep, error: keep } as never;
  const { ask } = await useApp({ app: { log } });
  const made = await ask("/v1/keys", admin({ body: {} }));
  const key: string = made.json.key;
  const escaped = [...key].map((c) => `%${c.charCodeAt(0).toString(16)}`).join("");
  const partly = key.replace("c", "%63").replace("_", "%5f");
  const answers = [
    await ask(`/v1/keys/${key}`, admin()),
    await ask(`/v1/jobs/${key}`, { key }),
    await ask(`/v1/jobs/${escaped}`, { key }),
    await ask(`/v1/jobs/${partly}`, { key }),
    await ask(`/v1/nothing?key=${key}`, { key }),
    await ask(`/v1/status?${key}=1`, { key }),
    await ask(`/v1/jobs?cursor=${key}`, { key }),
    await ask(`/v1/jobs?status=${key}`, { key }),
    await ask("/v1/jobs", { body: { [key]: 1 }, key }),
    await ask("/v1/jobs", { body: python("1", { labels: { [key]: 1 } }), key }),
    await ask("/v1/jobs/batch", { body: { jobs: [{ [key]: 1 }] }, key }),
  ];
  // Keys that others chose have no form of their own: what is no id is not repeated.
  const chosen = ["/v1/jobs/", "/v1/sandboxes/", "/v1/execs/"].map((path) => ask(path + KEY_B));
  for (const { status, text } of await Promise.all(chosen)) {
    expect([status, text.includes(KEY_B)]).toEqual([404, false]);
  }
  const presented = { body: { jobs: [{ [KEY_A]: 1 }] } };
  expect((await ask("/v1/jobs/batch", presented)).text).not.toContain(KEY_A);
  const secret = key.slice("cprg_".length);
  for (const text of [...answers.map((answer) => answer.text), ...lines]) {
    expect(text).not.toContain(secret);
    expect(text).not.toContain(escaped);
    expect(decodeURIComponent(text)).not.toContain(secret);
  }
});
