import { describe, expect, test } from "bun:test";
import { ONCE_WINDOW_MS } from "../../src/jobs/service.ts";
import { KEY_B, python, useApp } from "./fixture.ts";

const once = (key: string) => ({ "Idempotency-Key": key });

describe("Idempotency-Key", () => {
  test("makes one job of requests that come again, and of some that come at once", async () => {
    const { ask } = await useApp();
    const how = { body: python("print(1)"), headers: once("k-1") };
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask("/v1/jobs", how)));
    answers.push(await ask("/v1/jobs", how));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
    expect(new Set(answers.map(({ json }) => json.job_id)).size).toBe(1);
    const replayed = answers.filter(({ headers }) => headers.get("idempotent-replayed") === "true");
    expect(replayed).toHaveLength(answers.length - 1);
    expect((await ask("/v1/jobs")).json.jobs).toHaveLength(1);
  });

  test("refuses another body with 422, and knows the same JSON in other spaces", async () => {
    const { ask } = await useApp();
    const headers = once("k");
    const first = await ask("/v1/jobs", { body: python("1"), headers });
    const other = await ask("/v1/jobs", { body: python("2"), headers });
    expect(other).toMatchObject({
      status: 422,
      json: { reason: "IDEMPOTENCY_KEY_REUSED", field: "Idempotency-Key" },
    });
    const spaced = JSON.stringify(python("1"), null, 4);
    expect((await ask("/v1/jobs", { body: spaced, headers })).json.job_id).toBe(first.json.job_id);
  });

  test("is a tenant's own, and not a refused request's", async () => {
    const { ask } = await useApp();
    const headers = once("k");
    expect((await ask("/v1/jobs", { body: python(""), headers })).status).toBe(400);
    const a = await ask("/v1/jobs", { body: python("1"), headers });
    const b = await ask("/v1/jobs", { body: python("2"), headers, key: KEY_B });
    expect([a.status, b.status]).toEqual([201, 201]);
    expect(a.json.job_id).not.toBe(b.json.job_id);
  });

  test("counts for a day, and answers when the queue is full", async () => {
    let now = Date.UTC(2026, 0, 1);
    const clock = { now: () => now, monotonicMs: () => now };
    const run = () => new Promise<number>(() => undefined);
    const { ask } = await useApp({
      fake: { run },
      service: { clock, slots: 1, queueMax: 2, queueTenantMax: 2 },
    });
    const how = { body: python("1"), headers: once("k") };
    const first = await ask("/v1/jobs", how);
    while ((await ask("/v1/jobs", { body: python("2") })).status === 201) {}
    now += ONCE_WINDOW_MS;
    expect((await ask("/v1/jobs", how)).json.job_id).toBe(first.json.job_id);
    now += 1;
    expect((await ask("/v1/jobs", how)).json.reason).toBe("QUEUE_FULL");
  });

  test.each(["", "a b", "é", "x".repeat(256)])("refuses the key %p", async (key) => {
    const { ask } = await useApp();
    const answer = await ask("/v1/jobs", { body: python("1"), headers: once(key) });
    expect(answer).toMatchObject({ status: 400, json: { field: "Idempotency-Key" } });
  });
});

describe("POST /v1/jobs/batch", () => {
  test("takes and refuses each job alone, in order", async () => {
    const { ask } = await useApp();
    const jobs = [python("1"), python(""), { argv: ["ls"], labels: { n: "2" } }, 5, { nothing: 1 }];
    const answer = await ask("/v1/jobs/batch", { body: { jobs } });
    expect(answer.status).toBe(200);
    const [first, empty, argv, number, unknown] = answer.json.jobs;
    expect(first).toMatchObject({ status: "queued", language: "python" });
    expect(empty).toMatchObject({ status: 400, field: "code", title: "Bad Request" });
    expect(empty.request_id).toBe(answer.headers.get("x-request-id"));
    expect(argv).toMatchObject({ status: "queued", labels: { n: "2" } });
    expect(number).toMatchObject({ status: 400, field: "body" });
    expect(unknown).toMatchObject({ status: 400, field: "nothing" });
    expect((await ask("/v1/jobs")).json.jobs).toHaveLength(2);
  });

  test("takes a hundred jobs and not one more, and each its own key", async () => {
    const { ask } = await useApp();
    const jobs = Array.from({ length: 100 }, (_, n) =>
      python(`${n % 50}`, { idempotency_key: `k${n % 50}` }),
    );
    const taken = (await ask("/v1/jobs/batch", { body: { jobs } })).json.jobs;
    expect(new Set(taken.map(({ job_id }: { job_id: string }) => job_id)).size).toBe(50);
    const more = await ask("/v1/jobs/batch", { body: { jobs: [...jobs, python("1")] } });
    expect(more).toMatchObject({ status: 400, json: { field: "jobs" } });
    expect(await ask("/v1/jobs/batch", { body: { jobs: [] } })).toMatchObject({ status: 400 });
    expect(await ask("/v1/jobs/batch", { body: { jobs }, headers: once("k") })).toMatchObject({
      status: 400,
      json: { field: "Idempotency-Key" },
    });
  });

  test("keeps the bound of the queue", async () => {
    const { ask } = await useApp({
      fake: { run: () => new Promise<number>(() => undefined) },
      service: { slots: 1, queueMax: 5 },
    });
    const jobs = Array.from({ length: 20 }, () => python("1"));
    const views = (await ask("/v1/jobs/batch", { body: { jobs } })).json.jobs;
    const taken = views.filter(({ status }: { status: unknown }) => status === "queued");
    expect(taken.length).toBeLessThanOrEqual(6);
    expect(taken.length).toBeGreaterThan(0);
    expect(views.at(-1)).toMatchObject({ status: 503, reason: "QUEUE_FULL" });
  });
});

describe("placement", () => {
  test("is refused by a server that has no workers, and read strictly by any", async () => {
    const { ask } = await useApp();
    for (const placement of [{}, { labels: {} }, { labels: { gpu: "yes" } }]) {
      const answer = await ask("/v1/jobs", { body: python("1", { placement }) });
      expect([answer.status, answer.json.reason]).toEqual([400, "NO_WORKERS"]);
    }
    for (const labels of ['{"a b":"yes"}', '{"__proto__":"x"}', '{"a":"\\u0000"}', '{"a":1}']) {
      const body = `{"language":"python","code":"1","placement":{"labels":${labels}}}`;
      const answer = await ask("/v1/jobs", { body });
      expect(answer.status).toBe(400);
      expect(answer.json.field).toStartWith("placement.labels.");
    }
  });
});

test("GET /v1/jobs finds jobs by label", async () => {
  const { ask } = await useApp();
  const { json } = await ask("/v1/jobs", { body: python("1", { labels: { team: "a=b" } }) });
  await ask("/v1/jobs", { body: python("2", { labels: { team: "c" } }) });
  const found = await ask("/v1/jobs?label=team%3Da%3Db&language=python");
  expect(found.json.jobs.map(({ job_id }: { job_id: string }) => job_id)).toEqual([json.job_id]);
  expect((await ask("/v1/jobs?label=team%3D")).json.jobs).toEqual([]);
  expect(await ask("/v1/jobs?label=team")).toMatchObject({ status: 400, json: { field: "label" } });
});
