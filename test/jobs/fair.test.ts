// Tenants take turns, whatever they have queued.

import { expect, test } from "bun:test";
import type { Job } from "../../src/core/job.ts";
import { TENANT_BYTES_MAX } from "../../src/record/stored-bytes.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { TenantTurns, TURNS_REMEMBERED_MAX } from "../../src/tenancy/tenant-turns.ts";
import { sampleJob, sampleSpec } from "../store/samples.ts";
import { ended, pythonSpec, startService } from "./fixture.ts";

/** Programs that end when they are told to, in the order in which they started. */
function gate() {
  const running: (() => void)[] = [];
  return {
    running,
    run: () => new Promise<number>((resolve) => running.push(() => resolve(0))),
    endOldest: () => running.shift()?.(),
  };
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}

async function fill(store: ReturnType<typeof memoryStore>, tenant: string, count: number) {
  const spec = sampleSpec({ files: [], stdinBase64: null });
  for (let index = 0; index < count; index += 1)
    await store.jobs.insert(sampleJob({ tenant }), spec);
}

test("10 000 queued jobs of one tenant cost another's single job one end of a job", async () => {
  const store = memoryStore();
  await fill(store, "a", 10_000);
  const programs = gate();
  const options = { store, slots: 4, tenantConcurrency: 4, queueMax: 100_000 };
  const { jobs } = await startService(programs, options);
  await until(() => programs.running.length === 4);
  const job = await jobs.submit("b", pythonSpec("1"));
  expect((await jobs.get("b", job.id)).status).toBe("queued");
  programs.endOldest();
  await until(() => programs.running.length === 4);
  expect((await jobs.get("b", job.id)).status).toBe("running");
  while (programs.running.length > 0 && (await jobs.get("b", job.id)).status === "running") {
    programs.endOldest();
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect((await ended(jobs, job)).status).toBe("succeeded");
  await jobs.stop(0);
});

test("tenants with long queues get the same share of one slot", async () => {
  const store = memoryStore();
  for (const tenant of ["a", "b", "c"]) await fill(store, tenant, 20);
  const started: string[] = [];
  const start = store.jobs.start.bind(store.jobs);
  store.jobs.start = async (...args) => {
    const job: Job | null = await store.jobs.get(args[0]);
    started.push(job?.tenant ?? "?");
    return await start(...args);
  };
  const { jobs } = await startService({}, { store, slots: 1 });
  await until(() => started.length >= 30);
  await jobs.stop(0);
  const counts = ["a", "b", "c"].map(
    (tenant) => started.slice(0, 30).filter((other) => other === tenant).length,
  );
  expect(counts).toEqual([10, 10, 10]);
});

test("turns of so many tenants are remembered, and no more", () => {
  const turns = new TenantTurns();
  for (let index = 0; index < TURNS_REMEMBERED_MAX + 10; index += 1) turns.served(`t${index}`);
  const shares = turns.shares(["x", "x"]);
  expect(shares).toHaveLength(TURNS_REMEMBERED_MAX + 1);
  expect(shares.find(({ tenant }) => tenant === "x")).toEqual({ tenant: "x", share: 2, turn: 0 });
  expect(shares[0]?.tenant).toBe("t10");
});

test("a tenant whose bytes are used up gets 507's reason, others go on", async () => {
  const { jobs } = await startService({}, { tenantBytesMax: 2000 });
  await ended(jobs, await jobs.submit("a", pythonSpec(`print("${"x".repeat(1500)}")`)));
  const refused = jobs.submit("a", pythonSpec("1"));
  await expect(refused).rejects.toMatchObject({
    code: "resource_exhausted",
    reason: "TENANT_STORAGE_FULL",
  });
  expect((await ended(jobs, await jobs.submit("b", pythonSpec("1")))).status).toBe("succeeded");
  expect(TENANT_BYTES_MAX).toBe(10_737_418_240);
  await jobs.stop(0);
});
