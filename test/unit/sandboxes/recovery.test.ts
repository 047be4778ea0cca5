import { expect, test } from "bun:test";
import { newId } from "../../../src/core/ids.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { recoverSandboxes } from "../../../src/sandboxes/recovery.ts";
import { memoryStore } from "../../../src/store/memory-store.ts";

test("ends what dead instances left as interrupted, and nothing of the living", async () => {
  const store = memoryStore();
  const ids: Record<string, { sandbox: string; exec: string }> = {};
  for (const instance of ["dead", "here"]) {
    const sandbox = newId();
    const exec = newId();
    ids[instance] = { sandbox, exec };
    const common = { tenant: "t", limits: DEFAULT_LIMITS, createdAt: 1000, instance };
    await store.sandboxes.insert({
      ...common,
      id: sandbox,
      labels: {},
      placement: null,
      workerId: null,
      idleSeconds: 1,
      lifetimeSeconds: 1,
      endedAt: null,
      reason: null,
    });
    await store.execs.insert({
      ...common,
      id: exec,
      sandboxId: sandbox,
      status: "running",
      argv: ["x"],
      hasTerminal: false,
      finishedAt: null,
      outcome: null,
    });
  }
  const recovered = await recoverSandboxes({
    sandboxes: store.sandboxes,
    execs: store.execs,
    clock: { now: () => 5000, monotonicMs: () => 0 },
    livingInstances: ["here"],
  });
  expect(recovered).toEqual({ sandboxes: 1, execs: 1 });
  const { dead, here } = ids;
  expect(await store.sandboxes.get(dead?.sandbox ?? "")).toMatchObject({ reason: "interrupted" });
  const exec = await store.execs.get(dead?.exec ?? "");
  expect(exec).toMatchObject({
    status: "error",
    outcome: { reason: "interrupted", durationMs: 4000 },
  });
  expect(await store.sandboxes.get(here?.sandbox ?? "")).toMatchObject({ endedAt: null });
  expect(await store.execs.get(here?.exec ?? "")).toMatchObject({ status: "running" });
  const head = await store.events.head(`exec:${dead?.exec}`);
  expect(head).toMatchObject({ count: 1, complete: true });
});
