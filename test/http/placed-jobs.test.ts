// Jobs on workers, over /v1/jobs: the queue, what is recorded, and what a worker may send.

import { describe, expect, test } from "bun:test";
import type { EventRow } from "../../src/core/event.ts";
import { DEFAULT_LIMITS } from "../../src/core/limits.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import type { JobEvent, JobRunner } from "../../src/worker/job-methods.ts";
import { until } from "../control-plane/ground.ts";
import { startService } from "../jobs/fixture.ts";
import { KEY_B, python, useApp } from "./fixture.ts";
import { pause, usePlaced } from "./placed-ground.ts";

const ANY = { placement: { labels: {} } };
const FINISHED = {
  status: "succeeded",
  exit_code: 0,
  signal: null,
  reason: "exit",
  duration_ms: 5,
  killed: 0,
  usage: { cpu_ms: 3, memory_peak_bytes: 4096, pids_peak: null },
};
const started = (): JobEvent => event("started", STARTED);
const STARTED = { layers: { fake: true }, missing: [], limits: DEFAULT_LIMITS, interpreter: "x" };

function event(kind: string, data: unknown): JobEvent {
  return { at: 1, kind, data: JSON.stringify(data) };
}

function output(text: string, kind = "stdout"): JobEvent {
  return { at: 1, kind, output: Buffer.from(text) };
}

/** A worker's jobs that send events, and then wait to be cancelled if they are told to. */
function sends(events: readonly JobEvent[], { hangs = false } = {}): JobRunner {
  return {
    async run(_, { signal, emit }) {
      for (const each of events) await emit(each);
      if (!hangs) return;
      await new Promise<void>((resolve) => {
        signal.addEventListener("abort", () => resolve(), { once: true });
        if (signal.aborted) resolve();
      });
    },
  };
}

const WHOLE = [started(), output("out\n"), output("err\n", "stderr"), event("finished", FINISHED)];
const HANGING = sends([started(), output("up\n")], { hangs: true });

async function usePlacedJobs(options: Parameters<typeof usePlaced>[0] = {}) {
  const used = await usePlaced(options);
  const submit = async (body: object = {}) =>
    await used.ask("/v1/jobs", { body: python("1", { ...ANY, ...body }) });
  const look = async (id: string) => (await used.ask(`/v1/jobs/${id}`)).json;
  return {
    ...used,
    submit,
    look,
    /** A job once it has printed something. */
    up: async (id: string) => {
      while (!(await used.ask(`/v1/jobs/${id}/replay`)).text.includes("up\\n")) await pause();
    },
    result: async (id: string) => (await used.ask(`/v1/jobs/${id}/result?wait_seconds=20`)).json,
  };
}

describe("a job for a worker", () => {
  test("waits, says why, runs on one that has the labels, and keeps its result and log", async () => {
    await using used = await usePlacedJobs();
    const { status, json } = await used.submit({ placement: { labels: { gpu: "1" } } });
    expect([status, json.status, json.worker_id]).toEqual([201, "queued", null]);
    expect(json.placement).toEqual({ labels: { gpu: "1" } });
    expect((await used.look(json.job_id)).waiting).toMatchObject({ code: "NO_WORKER_MATCHES" });
    // Without job.Run, and without the label.
    await used.ground.worker({ labels: { gpu: "1" } });
    await used.ground.worker({ jobs: sends(WHOLE) });
    const { waiting } = await used.look(json.job_id);
    expect([waiting.code, waiting.detail]).toEqual([
      "NO_WORKER_MATCHES",
      expect.stringContaining("has gpu=1 and runs jobs"),
    ]);
    const { id } = await used.ground.worker({ labels: { gpu: "1" }, jobs: sends(WHOLE) });
    expect(await used.result(json.job_id)).toMatchObject({
      status: "succeeded",
      exit_code: 0,
      reason: "exit",
      stdout: "out\n",
      stderr: "err\n",
      duration_ms: 5,
      usage: FINISHED.usage,
    });
    expect(await used.look(json.job_id)).toMatchObject({ worker_id: id, status: "succeeded" });
    const { events, complete } = (await used.ask(`/v1/jobs/${json.job_id}/replay`)).json;
    expect(complete).toBe(true);
    expect((events as EventRow[]).map(({ kind }) => kind)).toEqual([
      "queued",
      "started",
      "stdout",
      "stderr",
      "finished",
    ]);
    // The time is ours: a log goes forward.
    const times = (events as EventRow[]).map(({ at }) => at);
    expect(times).toEqual([...times].sort());
    expect(used.ground.plane.workers().flatMap((one) => one.claims)).toEqual([]);
  });

  test("is cancelled while it waits, and while it runs", async () => {
    await using used = await usePlacedJobs();
    const waiting = (await used.submit()).json.job_id;
    const cancelled = await used.ask(`/v1/jobs/${waiting}`, { method: "DELETE" });
    expect([cancelled.status, cancelled.json.status]).toEqual([200, "cancelled"]);
    await used.ground.worker({ jobs: HANGING });
    const running = (await used.submit()).json.job_id;
    await used.up(running);
    expect((await used.look(running)).status).toBe("running");
    const ended = await used.ask(`/v1/jobs/${running}`, { method: "DELETE" });
    expect(ended.json).toMatchObject({ status: "cancelled", reason: "user" });
    expect((await used.result(running)).stdout).toBe("up\n");
    expect(used.ground.plane.workers().flatMap((one) => one.claims)).toEqual([]);
    // What was cancelled before never ran.
    const { events } = (await used.ask(`/v1/jobs/${waiting}/replay`)).json;
    expect((events as EventRow[]).map(({ kind }) => kind)).toEqual(["queued", "finished"]);
  });

  test("ends as worker_lost with its worker, and is not repeated", async () => {
    await using used = await usePlacedJobs();
    const { worker, ended } = await used.ground.worker({ jobs: HANGING });
    const { json } = await used.submit();
    await used.up(json.job_id);
    await worker.kill();
    await ended;
    await used.ground.worker({ jobs: sends(WHOLE) });
    const result = await used.result(json.job_id);
    expect(result).toMatchObject({ status: "error", reason: "worker_lost", stdout: "up\n" });
  });

  test("runs in its turn beside others of its tenant, and waits for the tenant's claims", async () => {
    await using used = await usePlacedJobs({ plane: { tenantLimit: 1 } });
    await used.ground.worker({ slots: 3, jobs: HANGING });
    const first = (await used.submit()).json.job_id;
    await used.up(first);
    const second = (await used.submit()).json.job_id;
    expect((await used.look(second)).waiting).toMatchObject({ code: "TENANT_LIMIT" });
    await used.ask(`/v1/jobs/${first}`, { method: "DELETE" });
    await used.up(second);
    await used.ask(`/v1/jobs/${second}`, { method: "DELETE" });
  });

  test("goes elsewhere when a worker refuses the claim, and fails when three do", async () => {
    await using used = await usePlacedJobs({ plane: { quarantineMs: 20 } });
    const beforeOpen = async (): Promise<void> => {
      throw new Error("no room");
    };
    const jobs = sends(WHOLE);
    await used.ground.worker({ id: "a", slots: 3, beforeOpen, jobs });
    await used.ground.worker({ id: "b", jobs });
    const good = (await used.submit()).json.job_id;
    expect(await used.result(good)).toMatchObject({ status: "succeeded" });
    await used.ground.plane.removeWorker("b");
    const bad = (await used.submit()).json.job_id;
    const result = await used.result(bad);
    expect([result.status, result.reason]).toEqual(["error", "claim_failed"]);
  });

  test("survives a restart of the server while it waits, and runs then", async () => {
    const store = memoryStore();
    const before = await usePlacedJobs({ plane: { store } });
    const { job_id: id } = (await before.submit()).json;
    await before.jobs.stop(0);
    expect((await store.jobs.get(id))?.status).toBe("queued");
    await using used = await usePlacedJobs({ plane: { store } });
    expect((await used.look(id)).waiting).toMatchObject({ code: "NO_WORKER_MATCHES" });
    await used.ground.worker({ jobs: sends(WHOLE) });
    expect(await used.result(id)).toMatchObject({ status: "succeeded", stdout: "out\n" });
    await before[Symbol.asyncDispose]();
  });

  test("that was left queued fails where the operator says so", async () => {
    const store = memoryStore();
    const before = await usePlacedJobs({ plane: { store } });
    const { job_id: id } = (await before.submit()).json;
    await before[Symbol.asyncDispose]();
    const { recovered } = await startService({}, { store, keepQueued: false });
    expect(recovered.failed).toBe(1);
    expect(await store.jobs.get(id)).toMatchObject({ status: "error" });
  });

  test("goes on for the grace of a server that stops, and ends as shutdown then", async () => {
    const used = await usePlacedJobs();
    let finish = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const slow: JobRunner = {
      async run(_, { emit }) {
        await emit(started());
        await emit(output("up\n"));
        await gate;
        await emit(event("finished", FINISHED));
      },
    };
    await used.ground.worker({ id: "slow", labels: { is: "slow" }, jobs: slow });
    await used.ground.worker({ id: "hanging", labels: { is: "hanging" }, jobs: HANGING });
    const place = (is: string) => ({ placement: { labels: { is } } });
    const first = (await used.submit(place("slow"))).json.job_id;
    const second = (await used.submit(place("hanging"))).json.job_id;
    await Promise.all([used.up(first), used.up(second)]);
    const leases = used.jobs.stop(600);
    const stopped = used.ground.plane.stop({ graceMs: 600, leases });
    finish();
    await Promise.all([leases, stopped]);
    expect(await used.store.jobs.get(first)).toMatchObject({ status: "succeeded" });
    expect(await used.store.jobs.get(second)).toMatchObject({
      status: "error",
      outcome: { reason: "shutdown" },
    });
    await used[Symbol.asyncDispose]();
  });

  test("counts among those that run", async () => {
    await using used = await usePlacedJobs();
    await used.ground.worker({ jobs: HANGING });
    const { json } = await used.submit();
    await used.up(json.job_id);
    expect(await used.jobs.counts()).toMatchObject({ running: 1, queued: 0 });
    expect((await used.jobs.counts("b")).running).toBe(0);
    await used.ask(`/v1/jobs/${json.job_id}`, { method: "DELETE" });
  });
});

describe("what a worker sends", () => {
  const long = "x".repeat(60_000);
  const HOSTILE: readonly (readonly [string, readonly JobEvent[]])[] = [
    ["no end", [started(), output("x")]],
    ["more output than the job may have", Array(20).fill(output(long)) as JobEvent[]],
    ["an event that is none", [started(), event("surprise", {})]],
    ["something after its end", [...WHOLE, output("more")]],
    ["a status that its reason does not have", [event("finished", { ...FINISHED, exit_code: 1 })]],
  ];
  test.each(HOSTILE)("is no result when it is %s", async (_, events) => {
    await using used = await usePlacedJobs();
    await used.ground.worker({ jobs: sends(events) });
    const { json } = await used.submit();
    const result = await used.result(json.job_id);
    expect(result.status).toBe("error");
    expect(result.error.message).not.toBe("");
    const { events: rows } = (await used.ask(`/v1/jobs/${json.job_id}/replay`)).json;
    expect((rows as EventRow[]).filter(({ kind }) => kind === "finished")).toHaveLength(1);
  });

  test("is not believed about who ended it", async () => {
    await using used = await usePlacedJobs();
    const end = { ...FINISHED, status: "cancelled", reason: "user", exit_code: null };
    await used.ground.worker({ jobs: sends([started(), event("finished", end)]) });
    const { json } = await used.submit();
    expect(await used.result(json.job_id)).toMatchObject({
      status: "error",
      reason: "interrupted",
    });
  });

  test("keeps limits and violations that it names", async () => {
    await using used = await usePlacedJobs();
    const hit = { limit: "mem_mb", value: 256, observed: 256, sampled: false };
    const end = {
      ...FINISHED,
      status: "oom_killed",
      reason: "oom",
      exit_code: null,
      signal: "SIGKILL",
    };
    const events = [started(), event("limit", hit), event("finished", end)];
    await used.ground.worker({ jobs: sends(events) });
    const { json } = await used.submit();
    expect(await used.result(json.job_id)).toMatchObject({
      status: "oom_killed",
      limits_hit: [hit],
    });
  });
});

describe("what is asked for", () => {
  test("a language that no worker has, and too many bytes, are refused before they wait", async () => {
    await using used = await usePlacedJobs();
    const cobol = await used.submit({ language: "cobol" });
    expect([cobol.status, cobol.json.field]).toEqual([400, "language"]);
    const files = [{ path: "big", text: "x".repeat(3 * 1024 * 1024) }];
    const big = await used.submit({ files });
    expect([big.status, big.json.field]).toEqual([400, "placement"]);
    const just = [{ path: "big", text: "x".repeat(3 * 1024 * 1024 - 1) }];
    expect((await used.submit({ files: just })).status).toBe(201);
  });

  test("the same request is one job, a batch is many, each placed", async () => {
    await using used = await usePlacedJobs();
    const headers = { "Idempotency-Key": "k1" };
    const once = async () => await used.ask("/v1/jobs", { body: python("1", ANY), headers });
    expect((await once()).json.job_id).toBe((await once()).json.job_id);
    const jobs = [python("1", ANY), python("1", { placement: { zone: "x" } })];
    const batch = await used.ask("/v1/jobs/batch", { body: { jobs } });
    expect(batch.json.jobs.map((one: { status: unknown }) => one.status)).toEqual(["queued", 400]);
    await used.ground.worker({ slots: 4, jobs: sends(WHOLE) });
    await until(() => used.ground.plane.workers().every((one) => one.claims.length === 0));
    for (const { job_id: id } of (await used.ask("/v1/jobs")).json.jobs) {
      expect(await used.result(id)).toMatchObject({ status: "succeeded" });
    }
  });

  test("a foreign worker is never chosen", async () => {
    await using used = await usePlacedJobs();
    const asked = { expiresInSeconds: 600, tenants: ["b"] };
    const { token } = await used.ground.plane.mintWorkerToken(asked);
    await used.ground.worker({ token, id: "of-b", jobs: sends(WHOLE) });
    const { json } = await used.submit();
    const own = await used.ask("/v1/jobs", { body: python("1", ANY), key: KEY_B });
    const path = `/v1/jobs/${own.json.job_id}/result?wait_seconds=20`;
    expect((await used.ask(path, { key: KEY_B })).json.status).toBe("succeeded");
    expect((await used.look(json.job_id)).waiting).toMatchObject({ code: "NO_WORKER_MATCHES" });
    expect((await used.ask(path)).status).toBe(404);
  });

  test("a server without workers refuses it; without placement it runs there as before", async () => {
    const { ask } = await useApp();
    const answer = await ask("/v1/jobs", { body: python("1", ANY) });
    expect([answer.status, answer.json.reason]).toEqual([400, "NO_WORKERS"]);
    await using used = await usePlacedJobs();
    const { json } = await used.ask("/v1/jobs", { body: python("1") });
    expect(json).toMatchObject({ placement: null, worker_id: null });
    expect(await used.result(json.job_id)).toMatchObject({ status: "succeeded" });
  });
});
