import { describe, expect, test } from "bun:test";
import { accepts } from "../../src/http/acceptable.ts";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { parseKeyList } from "../../src/tenancy/keys.ts";
import { KEY_A, python, useApp } from "./fixture.ts";

const ADMIN = "an-admins-key-0123456789";

describe("what a client accepts", () => {
  test.each<[string, string, boolean]>([
    ["*/*", "application/json", true],
    ["application/*;q=0.1", "application/json", true],
    ["text/html, application/json", "application/json", true],
    ["text/html", "application/json", false],
    ["application/json;q=0, */*", "application/json", false],
    ["", "application/json", true],
    ["nonsense", "application/json", true],
    ["APPLICATION/JSON", "application/json", true],
  ])("%p and %p: %p", (header, type, expected) => {
    expect(accepts(header, type)).toBe(expected);
  });

  test("is 406 before anything is done", async () => {
    const { ask } = await useApp();
    const headers = { Accept: "application/xml" };
    const refused = await ask("/v1/jobs", { body: python("1"), headers });
    expect(refused).toMatchObject({
      status: 406,
      json: { reason: "NOT_ACCEPTABLE", field: "Accept" },
    });
    expect((await ask("/v1/jobs")).json.jobs).toEqual([]);
    expect((await ask("/v1/jobs", { headers: { Accept: "application/json" } })).status).toBe(200);
  });
});

describe("methods", () => {
  test("OPTIONS names them, and gives nothing to other origins", async () => {
    const { ask } = await useApp();
    const headers = { Origin: "https://evil.example", "Access-Control-Request-Method": "POST" };
    const answer = await ask("/v1/jobs", { method: "OPTIONS", headers });
    expect([answer.status, answer.headers.get("allow")]).toEqual([204, "GET, POST"]);
    for (const name of answer.headers.keys()) expect(name).not.toStartWith("access-control");
    expect((await ask("/v1/jobs", { method: "OPTIONS", headers, key: null })).status).toBe(401);
    expect((await ask("/v1/none", { method: "OPTIONS" })).status).toBe(404);
    expect((await ask("/v1/jobs/x/files/a/b", { method: "PUT" })).headers.get("allow")).toBe("GET");
  });
});

describe("GET /v1/metrics", () => {
  const keys = new KeyRing([
    ...parseKeyList(`a:${KEY_A}`, { role: "tenant", source: "CPRG_API_KEYS" }),
    ...parseKeyList(`ops:${ADMIN}`, { role: "admin", source: "CPRG_ADMIN_KEYS" }),
  ]);

  test("counts jobs and requests, by routes and never by paths", async () => {
    const { ask } = await useApp({ app: { keys } });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    await ask(`/v1/jobs/${json.job_id}/result`);
    await ask(`/v1/jobs/${json.job_id}/files/a"b`);
    await ask("/v1/made/up");
    const metrics = await ask("/v1/metrics", { key: ADMIN });
    expect(metrics.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
    const lines = metrics.text.split("\n");
    expect(lines).toContain('cprg_jobs_total{status="succeeded"} 1');
    expect(lines).toContain('cprg_jobs_total{status="failed"} 0');
    expect(lines).toContain("cprg_running_jobs 0");
    expect(lines).toContain(
      'cprg_http_requests_total{method="POST",route="/v1/jobs",code="201"} 1',
    );
    expect(lines).toContain(
      'cprg_http_requests_total{method="GET",route="/v1/jobs/{id}/files/{path}",code="404"} 1',
    );
    expect(lines).toContain('cprg_http_requests_total{method="any",route="none",code="404"} 1');
    expect(metrics.text).not.toContain(json.job_id);
    for (const line of lines.filter((one) => one !== "" && !one.startsWith("#"))) {
      expect(line).toMatch(/^[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+$/);
    }
  });

  test("are an admin's alone", async () => {
    const { ask } = await useApp({ app: { keys } });
    expect(await ask("/v1/metrics")).toMatchObject({
      status: 403,
      json: { reason: "ADMIN_REQUIRED" },
    });
    expect((await ask("/v1/metrics", { key: null })).status).toBe(401);
  });
});
