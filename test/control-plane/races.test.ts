// Events that meet: cancels at each moment, claims at once, workers that go, what comes too late.

import { describe, expect, test } from "bun:test";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import type { ControlStore } from "../../src/control-plane/control-plane-options.ts";
import { EnvSeal } from "../../src/control-plane/env-seal.ts";
import { queuedTask } from "../../src/control-plane/task-queue.ts";
import { TaskRun, type TaskRunParts } from "../../src/control-plane/task-run.ts";
import { systemClock } from "../../src/core/clock.ts";
import { silentLog } from "../../src/core/log.ts";
import type { TaskChange } from "../../src/core/task.ts";
import { ephemeralControlKeys } from "../../src/store/control-keys.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { failure, sampleTask } from "../store/samples.ts";
import { startProxy } from "../worker/proxy.ts";
import { Ground, gate, until } from "./ground.ts";

/** A store that lets a test act between a change being asked for and being made. */
function watched(before: (id: string, change: TaskChange) => Promise<void> | void): ControlStore {
  const store = memoryStore();
  const { tasks } = store;
  return {
    ...store,
    tasks: {
      ...tasks,
      change: async (id, change) => {
        await before(id, change);
        return await tasks.change(id, change);
      },
    },
  };
}

describe("cancel", () => {
  test("in the queue: no worker hears of it", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    let runs = 0;
    plane.setRunner(async () => ++runs);
    const { id } = await plane.submit(1);
    expect(await plane.cancelTask(id)).toMatchObject({ status: "cancelled", reason: "user" });
    await ground.worker({ isIdle: true });
    const next = await plane.submit(2);
    expect(await plane.waitTask(next.id)).toMatchObject({ result: 1 });
    expect(await plane.task(id)).toMatchObject({ attempts: 0, epoch: 0, workerId: null });
    expect(await failure(plane.cancelTask(id))).toMatchObject({ reason: "TASK_STATUS" });
    expect(await failure(plane.cancelTask("nothing"))).toMatchObject({ code: "not_found" });
  });

  test("while it is claimed: the worker gives up, and the task never runs", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    let runs = 0;
    plane.setRunner(async () => ++runs);
    const gaveUp = gate();
    const asked = gate();
    const { worker } = await ground.worker({
      isIdle: true,
      beforeOpen: async (signal) => {
        asked.open();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        gaveUp.open();
        throw signal.reason;
      },
    });
    const { id } = await plane.submit(1);
    await asked.opened;
    const cancelled = await plane.cancelTask(id);
    await gaveUp.opened;
    expect(cancelled).toMatchObject({ status: "cancelled", reason: "user", startedAt: null });
    expect(worker.holder.table.isEmpty).toBe(true);
    expect(plane.workers()).toMatchObject([{ status: "idle", claims: [], failures: 0 }]);
    expect(runs).toBe(0);
  });

  test("between the worker's grant and the commit of `running`: the task never runs", async () => {
    const reached = gate();
    const go = gate();
    const store = watched(async (_, { type }) => {
      if (type !== "run") return;
      reached.open();
      await go.opened;
    });
    await using ground = await Ground.open({ store });
    const { plane } = ground;
    let runs = 0;
    plane.setRunner(async () => ++runs);
    const { worker } = await ground.worker({ isIdle: true });
    const { id } = await plane.submit(1);
    await reached.opened;
    const cancelling = plane.cancelTask(id);
    go.open();
    expect(await cancelling).toMatchObject({ status: "cancelled", reason: "user" });
    expect(worker.holder.table.isEmpty).toBe(true);
    expect(runs).toBe(0);
  });

  test("committed by another while it is claimed: `running` is refused, counted, and nothing runs", async () => {
    const store = watched(async (id, { type, at }) => {
      if (type !== "run") return;
      const end = { status: "cancelled", reason: "user" } as const;
      await store.tasks.change(id, { type: "finish", at, epoch: null, end });
    });
    await using ground = await Ground.open({ store });
    const { plane } = ground;
    let runs = 0;
    plane.setRunner(async () => ++runs);
    const { worker } = await ground.worker({ isIdle: true });
    const { id } = await plane.submit(1);
    expect(await plane.waitTask(id)).toMatchObject({ status: "cancelled", startedAt: null });
    await until(() => plane.counts.running === 0);
    expect(worker.holder.table.isEmpty).toBe(true);
    expect([runs, plane.staleEpochRefused]).toEqual([0, 1]);
  });

  test("while it runs: its programs are dead when that is said, and the runner hears why", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    let heard: unknown;
    plane.setRunner(async (_, { lease, signal }) => {
      signal.addEventListener("abort", () => {
        heard = signal.reason;
      });
      return await lease.invoke({ executable: "/bin/sleep", arguments: ["1000"] });
    });
    const { worker } = await ground.worker();
    const { id } = await plane.submit(1);
    await ground.has(id, "running");
    const cancelled = await plane.cancelTask(id);
    expect(cancelled).toMatchObject({ status: "cancelled", reason: "user", result: null });
    expect(worker.holder.table.isEmpty).toBe(true);
    expect(heard).toMatchObject({ code: "canceled" });
    expect(await plane.task(id)).toEqual(cancelled);
  });

  test("failTask() says what it is told", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    plane.setRunner(
      async (_, { signal }) =>
        await new Promise((resolve) => signal.addEventListener("abort", resolve)),
    );
    await ground.worker({ isIdle: true });
    const [running, waiting] = [await plane.submit(1), await plane.submit(2)];
    await ground.has(running.id, "running");
    for (const { id } of [waiting, running]) {
      const failed = await plane.failTask(id, "not wanted");
      expect(failed).toMatchObject({ status: "failed", reason: "user", error: "not wanted" });
    }
  });
});

describe("claims", () => {
  test("100 at once of one task: one is made, and only that one runs", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    const store = memoryStore();
    const { worker } = await ground.worker({ isIdle: true, slots: 100 });
    let runs = 0;
    const parts: TaskRunParts = {
      tasks: store.tasks,
      seal: new EnvSeal(ephemeralControlKeys().env),
      clock: systemClock,
      log: silentLog,
      stopping: new AbortController().signal,
      runner: () => async () => ++runs,
      withTtl: (order) => order,
      claimTtlSeconds: 0,
      onChange: () => undefined,
      onStale: () => undefined,
      note: async () => undefined,
    };
    const task = sampleTask();
    await store.tasks.insert(task, null);
    const id = plane.workers()[0]?.id ?? "";
    const tries = Array.from(
      { length: 100 },
      () => new TaskRun(queuedTask(task), plane.registry.reserve(id), parts),
    );
    await Promise.all(tries.map(({ ended }) => ended));
    expect(await store.tasks.get(task.id)).toMatchObject({
      status: "succeeded",
      attempts: 1,
      epoch: 1,
    });
    expect(runs).toBe(1);
    expect(worker.holder.table.isEmpty).toBe(true);
  });

  test("two schedulers with the same queue: each task runs once", async () => {
    const store = memoryStore();
    const tasks = Array.from({ length: 30 }, () => sampleTask({ runner: "default", labels: {} }));
    for (const task of tasks) await store.tasks.insert(task, null);
    await using first = await Ground.open({ store, ownsStore: false });
    await using second = await Ground.open({ store, ownsStore: false });
    const runs: string[] = [];
    for (const { plane } of [first, second]) {
      plane.setRunner(async (_, { task }) => {
        runs.push(task.id);
      });
    }
    await Promise.all([
      first.worker({ isIdle: true, slots: 4 }),
      second.worker({ isIdle: true, slots: 4 }),
    ]);
    await until(() => [first, second].every(({ plane }) => plane.counts.queued === 0));
    await until(() => [first, second].every(({ plane }) => plane.counts.running === 0));
    expect(runs.sort()).toEqual(tasks.map(({ id }) => id).sort());
    for (const { id } of tasks) {
      expect(await store.tasks.get(id)).toMatchObject({ status: "succeeded", attempts: 1 });
    }
  });

  test("of a worker that is gone hold up nobody: its id is claimed again when it comes back", async () => {
    await using ground = await Ground.open({ liveness: { graceMs: 50 } });
    const { plane } = ground;
    plane.setRunner(async (input, { signal }) => {
      if (input === "quick") return "done";
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      throw signal.reason;
    });
    const { worker, id, secret, ended } = await ground.worker({ isIdle: true });
    const task = await plane.submit("slow");
    await ground.has(task.id, "running");
    await worker.kill();
    await ended;
    expect(await plane.waitTask(task.id)).toMatchObject({
      status: "failed",
      reason: "worker_lost",
    });
    expect(plane.workers()).toMatchObject([{ id, status: "lost", claims: [] }]);
    const shown = secret();
    await ground.worker({ isIdle: true, id, ...(shown === undefined ? {} : { secret: shown }) });
    const next = await plane.submit("quick");
    expect(await plane.waitTask(next.id)).toMatchObject({ result: "done", workerId: id });
  });

  test("outlive the loss of their stream: the task goes on, and no byte of its program is lost", async () => {
    await using ground = await Ground.open();
    const { plane, port } = ground;
    const proxy = await startProxy(port);
    plane.setRunner(async (_, { lease, signal }) => {
      let seen = 0;
      const { stdout } = await lease.invoke({
        executable: "sh",
        arguments: [
          "-c",
          "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.02; done",
        ],
        signal,
        observe: () => {
          seen += 1;
          if (seen % 5 === 0) proxy.cut();
        },
      });
      return stdout;
    });
    await ground.worker({ port: proxy.port });
    const { id } = await plane.submit(1);
    const task = await plane.waitTask(id);
    expect(task).toMatchObject({ status: "succeeded", attempts: 1, epoch: 1 });
    expect(task.result).toBe(Array.from({ length: 30 }, (_, at) => `line ${at}\n`).join(""));
    expect(proxy.connections).toBeGreaterThan(2);
    await proxy.close();
  });

  test("a worker that drains refuses: that costs the task no attempt, and it goes elsewhere", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    const held = gate();
    plane.setRunner(async (input) => (input === "hold" ? await held.opened : "done"));
    const { worker, id } = await ground.worker({ isIdle: true, slots: 2 });
    const first = await plane.submit("hold");
    await ground.has(first.id, "running");
    worker.drain();
    const second = await plane.submit("quick");
    await until(() => plane.workers().some((one) => one.id === id && one.status === "draining"));
    await until(() => plane.counts.queued === 1);
    expect(await plane.task(second.id)).toMatchObject({ status: "queued", attempts: 0, epoch: 1 });
    await ground.worker({ isIdle: true });
    expect(await plane.waitTask(second.id)).toMatchObject({ status: "succeeded", epoch: 2 });
    held.open();
    expect((await plane.waitTask(first.id)).status).toBe("succeeded");
  });
});

describe("what comes too late", () => {
  test("a call on a claim whose stream is gone fails at once", async () => {
    await using ground = await Ground.open({ liveness: { graceMs: 50 } });
    const { plane } = ground;
    const calls: unknown[] = [];
    const done = gate();
    plane.setRunner(async (_, { lease, signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      for (const call of [
        () => lease.invoke({ executable: "true" }),
        () => lease.upload(import.meta.path, "here"),
        () => lease.release(),
      ]) {
        calls.push(
          await call().then(
            () => "ok",
            (error) => error.reason,
          ),
        );
      }
      done.open();
    });
    const { worker } = await ground.worker({ isIdle: true });
    const { id } = await plane.submit(1);
    await ground.has(id, "running");
    await worker.kill();
    await done.opened;
    expect(calls).toEqual(["WORKER_LOST", "WORKER_LOST", "ok"]);
    expect(await plane.waitTask(id)).toMatchObject({ status: "failed", reason: "worker_lost" });
  });

  test("the result of a task that had ended is refused and counted", async () => {
    const store = memoryStore();
    await using ground = await Ground.open({ store });
    const { plane } = ground;
    const { opened, open } = gate();
    plane.setRunner(async () => {
      await opened;
      return "late";
    });
    await ground.worker({ isIdle: true });
    const { id } = await plane.submit(1);
    await ground.has(id, "running");
    const end = { status: "failed", reason: "user", error: "by hand" } as const;
    await store.tasks.change(id, { type: "finish", at: 1, epoch: null, end });
    open();
    await until(() => plane.counts.running === 0);
    expect(plane.staleEpochRefused).toBe(1);
    expect(await plane.task(id)).toMatchObject({
      status: "failed",
      error: "by hand",
      result: null,
    });
  });

  test("claims of an old epoch that a worker speaks of are dropped and counted", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    const { worker } = await ground.worker({ isIdle: true, slots: 2 });
    // What no control plane of now has made.
    await worker.holder.claim(
      { taskId: "ghost", epoch: 7, env: {}, repoUrl: "", ref: "", claimTtlSeconds: 0, limits: {} },
      new AbortController().signal,
    );
    await until(() => plane.staleEpochRefused > 0);
    await until(() => worker.holder.table.isEmpty);
    expect(plane.workers()).toMatchObject([{ claims: [] }]);
  });

  test("a worker that still holds what was given up here is asked again when it has let go, at no cost", async () => {
    await using ground = await Ground.open();
    const { plane } = ground;
    plane.setRunner(async () => "done");
    const { worker } = await ground.worker({ isIdle: true });
    await worker.holder.claim(
      {
        taskId: "given-up",
        epoch: 7,
        env: {},
        repoUrl: "",
        ref: "",
        claimTtlSeconds: 0,
        limits: {},
      },
      new AbortController().signal,
    );
    const { id } = await plane.submit(null);
    expect(await plane.waitTask(id)).toMatchObject({ status: "succeeded", attempts: 1 });
    expect(plane.workers()).toMatchObject([{ failures: 0 }]);
  });
});

describe("stop()", () => {
  test("waits for what runs, leaves the rest queued, and takes nothing more", async () => {
    const store = memoryStore();
    const ground = await Ground.open({ store, ownsStore: false });
    const { plane } = ground;
    const { opened, open } = gate();
    plane.setRunner(async () => {
      await opened;
      return "done";
    });
    await ground.worker({ isIdle: true });
    const running = await plane.submit(1);
    await ground.has(running.id, "running");
    const queued = await plane.submit(2);
    const waiting = failure(plane.waitTask(queued.id));
    const stopped = plane.stop({ graceMs: 60_000 });
    expect(await failure(plane.submit(3))).toMatchObject({ reason: "STOPPING" });
    expect(await failure(plane.serve({ port: 0 }))).toMatchObject({ reason: "STOPPING" });
    open();
    await stopped;
    expect(plane.stop()).toBe(plane.stop());
    expect(await waiting).toMatchObject({ reason: "STOPPING" });
    expect(await store.tasks.get(running.id)).toMatchObject({ status: "succeeded" });
    expect(await store.tasks.get(queued.id)).toMatchObject({ status: "queued", attempts: 0 });
    await ground[Symbol.asyncDispose]();
  });

  test("a second, shorter grace ends what runs, with a reason", async () => {
    const store = memoryStore();
    const ground = await Ground.open({ store, ownsStore: false });
    const { plane } = ground;
    plane.setRunner(
      async (_, { signal }) =>
        await new Promise((resolve) => signal.addEventListener("abort", resolve)),
    );
    await ground.worker({ isIdle: true });
    const { id } = await plane.submit(1);
    await ground.has(id, "running");
    const stopped = plane.stop({ graceMs: 3_600_000 });
    await plane.stop({ graceMs: 0 });
    await stopped;
    expect(await store.tasks.get(id)).toMatchObject({ status: "failed", reason: "shutdown" });
    await ground[Symbol.asyncDispose]();
  });

  test("while a task is claimed: it waits again, at no cost", async () => {
    const store = memoryStore();
    const ground = await Ground.open({ store, ownsStore: false });
    const { plane } = ground;
    let runs = 0;
    plane.setRunner(async () => ++runs);
    const asked = gate();
    await ground.worker({
      isIdle: true,
      beforeOpen: async (signal) => {
        asked.open();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        throw signal.reason;
      },
    });
    const { id } = await plane.submit(1);
    await asked.opened;
    await plane.stop({ graceMs: 60_000 });
    expect(await store.tasks.get(id)).toMatchObject({ status: "queued", attempts: 0, epoch: 1 });
    expect(runs).toBe(0);
    await ground[Symbol.asyncDispose]();
  });

  test("without ever serving", async () => {
    const plane = new ControlPlane();
    await plane.stop();
    await plane.stop();
  });
});
