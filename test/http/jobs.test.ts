import { describe, expect, test } from "bun:test";
import { isTerminalLine } from "../../src/core/chain.ts";
import { isId, newId } from "../../src/core/ids.ts";
import { CEILING_LIMITS, DEFAULT_LIMITS } from "../../src/core/limits.ts";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { hashKey } from "../../src/tenancy/keys.ts";
import { KEY_A, KEY_B, python, useApp } from "./fixture.ts";

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** A program that runs until it is killed. */
const untilKilled = { run: () => new Promise<number>(() => undefined) };

describe("POST /v1/jobs", () => {
  test("answers 201 with id, status, effective limits and the view", async () => {
    const { ask } = await useApp();
    const answer = await ask("/v1/jobs", {
      body: python("print(1)", {
        limits: { wall_seconds: 9999, mem_mb: 128 },
        labels: { run: "7" },
      }),
    });
    expect(answer.status).toBe(201);
    expect(answer.json).toEqual({
      job_id: answer.json.job_id,
      tenant: "a",
      status: "queued",
      language: "python",
      created_at: expect.stringMatching(RFC3339),
      started_at: null,
      finished_at: null,
      exit_code: null,
      signal: null,
      reason: null,
      limits: { ...DEFAULT_LIMITS, wall_seconds: 300, mem_mb: 128, disk_mb: 128 },
      usage: null,
      labels: { run: "7" },
      placement: null,
      worker_id: null,
    });
    expect(isId(answer.json.job_id)).toBe(true);
    expect(answer.headers.get("location")).toBe(`/v1/jobs/${answer.json.job_id}`);
    expect(answer.headers.get("x-request-id")).not.toBeNull();
  });

  test("clamps to the ceilings of the key, else to the server's", async () => {
    const ceiling = (seconds: number) => ({ ...CEILING_LIMITS, wall_seconds: seconds });
    const own = {
      tenant: "a",
      role: "tenant",
      hash: hashKey(KEY_A),
      ceilings: ceiling(600),
    } as const;
    const other = { tenant: "b", role: "tenant", hash: hashKey(KEY_B) } as const;
    const { ask } = await useApp({
      app: { keys: new KeyRing([own, other]), ceilings: ceiling(7) },
    });
    const body = python("1", { limits: { wall_seconds: 500 } });
    expect((await ask("/v1/jobs", { body })).json.limits.wall_seconds).toBe(500);
    expect((await ask("/v1/jobs", { body, key: KEY_B })).json.limits.wall_seconds).toBe(7);
    const shown = await ask("/v1/status", { key: KEY_B });
    expect(shown.json.limits.ceilings.wall_seconds).toBe(7);
  });

  test("takes argv, arguments, files, variables and input to the program", async () => {
    const seen: unknown[] = [];
    const { ask } = await useApp({
      fake: {
        run: async ({ spec, files }) => {
          seen.push({ ...spec, stdin: Buffer.from(spec.stdin as Uint8Array).toString() });
          seen.push(Object.fromEntries(files));
          return 0;
        },
      },
    });
    const body = {
      argv: ["/bin/sort", "-n"],
      stdin_base64: Buffer.from("3\n1\n").toString("base64"),
      files: [
        { path: "dir/a.txt", text: "é", mode: "0755" },
        { path: "b", base64: "AAE=" },
      ],
      env: { NAME: "value" },
      kill_grace_seconds: 0.5,
    };
    const { json } = await ask("/v1/jobs", { body });
    const result = await ask(`/v1/jobs/${json.job_id}/result`);
    expect(result).toMatchObject({ status: 200, json: { status: "succeeded" } });
    expect(seen[0]).toMatchObject({
      executable: "/bin/sort",
      arguments: ["-n"],
      directory: "/workspace",
      stdin: "3\n1\n",
      variables: { NAME: "value", HOME: "/home/agent" },
    });
    expect(seen[1]).toEqual({ "/workspace/dir/a.txt": "é", "/workspace/b": "\0\u0001" });
  });

  test("answers 503 with QUEUE_FULL and Retry-After when the queue is full", async () => {
    const { ask, jobs } = await useApp({ fake: { capacity: 0 }, service: { queueMax: 2 } });
    for (const body of [python("1"), python("2")]) {
      expect(await ask("/v1/jobs", { body })).toMatchObject({ status: 201 });
    }
    const full = await ask("/v1/jobs", { body: python("3") });
    expect(full).toMatchObject({
      status: 503,
      json: { code: "unavailable", reason: "QUEUE_FULL" },
    });
    expect(Number(full.headers.get("retry-after"))).toBeGreaterThan(0);
    await jobs.stop(0);
    expect(await ask("/v1/jobs", { body: python("4") })).toMatchObject({
      status: 503,
      json: { reason: "STOPPING" },
    });
  });

  test("keeps the bound of the queue when submits come at once, for each tenant too", async () => {
    const { ask } = await useApp({
      fake: { capacity: 0 },
      service: { queueMax: 5, queueTenantMax: 3 },
    });
    const submit = (key: string) => ask("/v1/jobs", { body: python("1"), key });
    const ofA = await Promise.all(Array.from({ length: 6 }, () => submit(KEY_A)));
    expect(ofA.map(({ status }) => status).sort()).toEqual([201, 201, 201, 503, 503, 503]);
    const ofB = await Promise.all(Array.from({ length: 4 }, () => submit(KEY_B)));
    expect(ofB.map(({ status }) => status).sort()).toEqual([201, 201, 503, 503]);
  });

  test("answers 400 for a language that is not here, with the fix", async () => {
    const { ask } = await useApp();
    expect(await ask("/v1/jobs", { body: { language: "cobol", code: "x" } })).toMatchObject({
      status: 400,
      json: { reason: "NO_INTERPRETER", field: "language", hint: "apt-get install cobol" },
    });
  });
});

describe("GET /v1/jobs", () => {
  test("pages through the tenant's jobs, newest first, filtered", async () => {
    const { ask, jobs } = await useApp();
    const ids: string[] = [];
    for (const code of ["1", "2", "3"]) {
      const { json } = await ask("/v1/jobs", { body: python(code) });
      await jobs.wait("a", json.job_id, { waitMs: 10_000 });
      ids.unshift(json.job_id);
    }
    const first = await ask("/v1/jobs?limit=2");
    expect(first.json.jobs.map((job: { job_id: string }) => job.job_id)).toEqual(ids.slice(0, 2));
    const cursor = encodeURIComponent(first.json.next_cursor);
    const second = await ask(`/v1/jobs?limit=2&cursor=${cursor}&status=succeeded&language=python`);
    expect(second.json.jobs.map((job: { job_id: string }) => job.job_id)).toEqual(ids.slice(2));
    expect(second.json.next_cursor).toBeNull();
    expect((await ask("/v1/jobs?status=failed")).json).toEqual({ jobs: [], next_cursor: null });
    expect((await ask("/v1/jobs", { key: KEY_B })).json.jobs).toEqual([]);
  });
});

describe("GET /v1/jobs/{id}", () => {
  test("shows a job that ended, and why one waits", async () => {
    const { ask, jobs } = await useApp({ fake: untilKilled, service: { slots: 1 } });
    const running = await ask("/v1/jobs", { body: python("1") });
    const waiting = await ask("/v1/jobs", { body: python("2"), key: KEY_B });
    expect((await ask(`/v1/jobs/${waiting.json.job_id}`, { key: KEY_B })).json).toMatchObject({
      status: "queued",
      waiting: { code: "SLOTS_BUSY", detail: expect.any(String) },
    });
    await ask(`/v1/jobs/${running.json.job_id}`, { method: "DELETE" });
    const view = (await ask(`/v1/jobs/${running.json.job_id}`)).json;
    expect(view).toMatchObject({
      status: "cancelled",
      reason: "user",
      exit_code: null,
      signal: "SIGTERM",
      started_at: expect.stringMatching(RFC3339),
      finished_at: expect.stringMatching(RFC3339),
      usage: { cpu_ms: 1, memory_peak_bytes: 1024, pids_peak: 1 },
    });
    expect(view).not.toHaveProperty("waiting");
    await jobs.stop(0);
  });
});

describe("DELETE /v1/jobs/{id}", () => {
  test("cancels a queued job at once, and answers 409 afterwards", async () => {
    const { ask, provider } = await useApp({ fake: { capacity: 0 } });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const gone = await ask(`/v1/jobs/${json.job_id}`, { method: "DELETE" });
    expect(gone).toMatchObject({ status: 200, json: { status: "cancelled", started_at: null } });
    expect(await ask(`/v1/jobs/${json.job_id}`, { method: "DELETE" })).toMatchObject({
      status: 409,
      json: { code: "aborted", reason: "JOB_ENDED" },
    });
    expect(provider).toMatchObject({ peak: 0, reserved: 0 });
  });

  test("cancels a running job with its grace, and answers once it is terminal", async () => {
    const { ask, provider } = await useApp({ fake: untilKilled });
    const { json } = await ask("/v1/jobs", { body: python("1", { kill_grace_seconds: 1.5 }) });
    await until(() => provider.open_ === 1);
    const gone = await ask(`/v1/jobs/${json.job_id}`, { method: "DELETE" });
    expect(gone).toMatchObject({ status: 200, json: { status: "cancelled", reason: "user" } });
    expect(provider.kills).toEqual([{ reason: "user", graceMs: 1500 }]);
    expect((await ask(`/v1/jobs/${json.job_id}`, { method: "DELETE" })).status).toBe(409);
  });

  test("answers 202 when the end takes longer than it waits", async () => {
    const end = Promise.withResolvers<number>();
    const { ask, provider } = await useApp({
      fake: { run: () => end.promise },
      app: { cancelWaitMs: 1 },
    });
    provider.options.ignoresKill = true;
    const { json } = await ask("/v1/jobs", { body: python("1") });
    await until(() => provider.open_ === 1);
    const path = `/v1/jobs/${json.job_id}`;
    expect(await ask(path, { method: "DELETE" })).toMatchObject({
      status: 202,
      json: { status: "running" },
    });
    end.resolve(0);
    expect((await ask(`${path}/result`)).json).toMatchObject({ status: "succeeded" });
    expect((await ask(path, { method: "DELETE" })).status).toBe(409);
  });
});

describe("GET /v1/jobs/{id}/result", () => {
  test("folds the output of a job that ended", async () => {
    const { ask } = await useApp({
      fake: {
        run: async ({ out, notice }) => {
          await out("one é\n");
          await out("warning\n", "stderr");
          await out("two\n");
          const hit = { limit: "pids", value: 64, observed: 64, sampled: false } as const;
          await notice({ type: "limit", hit });
          await notice({ type: "truncated", channel: "stdout", limitBytes: 1024 });
          return 3;
        },
      },
    });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const result = await ask(`/v1/jobs/${json.job_id}/result?wait_seconds=300`);
    expect(result.status).toBe(200);
    expect(result.json).toEqual({
      job_id: json.job_id,
      status: "failed",
      exit_code: 3,
      signal: null,
      reason: "exit",
      duration_ms: 5,
      usage: { cpu_ms: 1, memory_peak_bytes: 1024, pids_peak: 1 },
      stdout: "one é\ntwo\n",
      stderr: "warning\n",
      truncated: true,
      violations: [],
      limits_hit: [{ limit: "pids", value: 64, observed: 64, sampled: false }],
    });
  });

  test("gives the exact bytes in base64 where they are no UTF-8", async () => {
    const bytes = Buffer.from([0x61, 0xff, 0xfe, 0x0a, 0xc3]);
    const { ask } = await useApp({
      fake: {
        run: async ({ out }) => {
          await out(bytes);
          await out("plain", "stderr");
          return 0;
        },
      },
    });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const result = (await ask(`/v1/jobs/${json.job_id}/result`)).json;
    expect(Buffer.from(result.stdout_base64, "base64")).toEqual(bytes);
    expect(result.stdout).toBe("a\ufffd\ufffd\n\ufffd");
    expect(result).not.toHaveProperty("stderr_base64");
  });

  test("answers 202 with what there is when the wait is over", async () => {
    const { ask, jobs } = await useApp({
      fake: {
        run: async ({ out, killed }) => {
          await out("so far");
          await killed;
          return 0;
        },
      },
    });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    const path = `/v1/jobs/${json.job_id}/result?wait_seconds=0`;
    const partial = async () => await ask(path);
    await until(async () => (await partial()).json.stdout !== "");
    expect(await partial()).toMatchObject({
      status: 202,
      json: { status: "running", stdout: "so far", exit_code: null, duration_ms: null },
    });
    await jobs.stop(0);
  });

  test("names a failed set-up's step and fix", async () => {
    const { CprgError } = await import("../../src/core/errors.ts");
    const { ask } = await useApp({
      fake: {
        openError: new CprgError("failed_precondition", "Cannot mount /usr: ENOENT", {
          setup: { step: "mount", index: 1, errno: 2, errnoName: "ENOENT" },
          hint: "Check CPRG_BINDS",
        }),
      },
    });
    const { json } = await ask("/v1/jobs", { body: python("1") });
    expect((await ask(`/v1/jobs/${json.job_id}/result`)).json).toMatchObject({
      status: "error",
      reason: "setup_failed",
      error: { message: "Cannot mount /usr: ENOENT", step: "mount", hint: "Check CPRG_BINDS" },
    });
  });
});

describe("GET /v1/jobs/{id}/replay", () => {
  test("gives the exact lines of the log, from any event on", async () => {
    const { ask, store } = await useApp();
    const { json } = await ask("/v1/jobs", { body: python("hello") });
    await ask(`/v1/jobs/${json.job_id}/result`);
    const read = await store.events.read(`job:${json.job_id}`, 1, { limit: 100, maxBytes: 1e6 });
    const lines = read.map(({ line }) => line);
    const replay = await ask(`/v1/jobs/${json.job_id}/replay`);
    expect(replay.text).toBe(
      `{"job_id":"${json.job_id}","events":[${lines.join(",")}],"complete":true}`,
    );
    const tail = await ask(`/v1/jobs/${json.job_id}/replay?from_seq=3`);
    expect(tail.json.events).toEqual(lines.slice(2).map((line) => JSON.parse(line)));
    const beyond = await ask(`/v1/jobs/${json.job_id}/replay?from_seq=9`);
    expect(beyond.json).toEqual({ job_id: json.job_id, events: [], complete: true });
  });

  test("gives the sealed export when NDJSON is asked for", async () => {
    const { ask } = await useApp();
    const { json } = await ask("/v1/jobs", { body: python("hello") });
    await ask(`/v1/jobs/${json.job_id}/result`);
    const path = `/v1/jobs/${json.job_id}/replay`;
    const byAccept = await ask(path, { headers: { Accept: "application/x-ndjson" } });
    const byFormat = await ask(`${path}?format=ndjson`, {
      headers: { Accept: "application/json" },
    });
    for (const answer of [byAccept, byFormat]) {
      expect(answer.headers.get("content-type")).toBe("application/x-ndjson");
      const lines = answer.text.trimEnd().split("\n");
      expect(isTerminalLine(lines.at(-2) ?? "")).toBe(true);
      expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({
        kind: "seal",
        count: 4,
        complete: true,
      });
    }
    const both = { Accept: "application/json, application/x-ndjson" };
    expect((await ask(path, { headers: both })).json).toMatchObject({ complete: true });
    expect(await ask(`${path}?format=ndjson&from_seq=2`)).toMatchObject({
      status: 400,
      json: { field: "from_seq" },
    });
  });
});

describe("another tenant's job", () => {
  test("does not exist, on any path, as one that never did", async () => {
    const { ask } = await useApp();
    const { json } = await ask("/v1/jobs", { body: python("secret") });
    await ask(`/v1/jobs/${json.job_id}/result`);
    for (const id of [json.job_id, newId(), "x", "..%2f..", "%00", "%ff"]) {
      for (const [method, tail] of [
        ["GET", ""],
        ["DELETE", ""],
        ["GET", "/result?wait_seconds=0"],
        ["GET", "/replay"],
        ["GET", "/replay?format=ndjson"],
        ["GET", "/stream"],
      ] as const) {
        const answer = await ask(`/v1/jobs/${id}${tail}`, { method, key: KEY_B });
        expect([id, tail, answer.status]).toEqual([id, tail, 404]);
        expect(answer.json.code).toBe("not_found");
        expect(answer.text).not.toContain("secret");
      }
    }
  });
});

/** Resolves when a condition holds; looks again whenever the loop turned. */
async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setImmediate(resolve));
}
