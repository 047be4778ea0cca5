// Tasks from submit to their end, with workers over TCP in this process and in others.

import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import type { Runner } from "../../src/control-plane/contract.ts";
import type { Json } from "../../src/core/task.ts";
import { failure } from "../store/samples.ts";
import { Ground, gate, PATH, until } from "./ground.ts";

const sh: Runner = async (input, { lease, signal }) =>
  await lease.invoke({
    executable: "sh",
    arguments: ["-c", String(input)],
    variables: { PATH },
    signal,
  });

test("a task is claimed, run and kept, by a worker in another process", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  plane.setRunner(sh);
  const task = await plane.submit("echo out; echo err >&2; exit 3", { labels: {} });
  expect(task).toMatchObject({ status: "queued", tenant: "default", epoch: 0, attempts: 0 });
  expect(task.waiting).toEqual({ code: "no_worker_matches", detail: "no worker is connected" });
  expect(Object.isFrozen(task)).toBe(true);
  await ground.process();
  const ended = await plane.waitTask(task.id);
  expect(ended).toMatchObject({
    status: "succeeded",
    reason: "exit",
    result: { status: 3, stdout: "out\n", stderr: "err\n" },
    attempts: 1,
    epoch: 1,
  });
  expect(ended.waiting).toBeUndefined();
  const kinds: unknown[] = [];
  for await (const { line } of plane.events(task.id)) {
    const { kind, data } = JSON.parse(line);
    kinds.push(kind === "task" ? data.status : kind);
  }
  expect(kinds).toEqual(["queued", "claiming", "running", "finished"]);
});

test("the environment reaches the claim's programs, and nothing else", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const seen: string[] = [];
  plane.setRunner(async (input, context) => {
    seen.push(JSON.stringify(context.task));
    return await sh(input, context);
  });
  await ground.worker();
  const env = { SECRET: "value-of-the-secret" };
  const { id } = await plane.submit('echo "$SECRET"', { env });
  const { result } = await plane.waitTask(id);
  expect(result).toMatchObject({ stdout: "value-of-the-secret\n" });
  expect(seen.join()).not.toContain("value-of-the-secret");
  const other = await plane.submit('echo "[$SECRET]"');
  expect((await plane.waitTask(other.id)).result).toMatchObject({ stdout: "[]\n" });
});

test("what a runner says is in the log; what it resolves with has to be JSON", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  await ground.worker({ isIdle: true });
  const outcomes: Record<string, () => unknown> = {
    nothing: () => undefined,
    nested: () => ({ a: [1, null, { b: "é" }], gone: undefined }),
    date: () => new Date(0),
    nan: () => Number.NaN,
    big: () => 1n,
    cycle: () => {
      const cycle: unknown[] = [];
      cycle.push(cycle);
      return cycle;
    },
    large: () => "x".repeat(2 * 1024 * 1024),
    thrown: () => {
      throw new Error("it went wrong");
    },
  };
  plane.setRunner(async (input, { note }) => {
    await note("said é\n");
    return outcomes[String(input)]?.();
  });
  const ends: unknown[] = [];
  for (const name of Object.keys(outcomes)) {
    const { id } = await plane.submit(name);
    const { status, reason, result } = await plane.waitTask(id);
    ends.push([name, status, reason, result]);
    const lines: string[] = [];
    for await (const { line } of plane.events(id)) lines.push(line);
    expect(lines.some((line) => JSON.parse(line).data === "said é\n")).toBe(true);
  }
  const no = (name: string) => [name, "failed", "result_not_serializable", null];
  expect(ends).toEqual([
    ["nothing", "succeeded", "exit", null],
    ["nested", "succeeded", "exit", { a: [1, null, { b: "é" }] }],
    ...["date", "nan", "big", "cycle", "large"].map(no),
    ["thrown", "failed", "runner_error", null],
  ]);
});

test("a repository that cannot be cloned: three claims, then the task fails; the worker goes on", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  plane.setRunner(sh);
  await ground.process();
  const { id } = await plane.submit("true", { repoUrl: "https://127.0.0.1:1/none.git" });
  const task = await plane.waitTask(id);
  expect(task).toMatchObject({ status: "failed", reason: "claim_failed", attempts: 3, epoch: 3 });
  expect(task.error).toContain("clone");
  expect(plane.workers()).toMatchObject([{ status: "idle", failures: 0, claims: [] }]);
  const next = await plane.submit("true");
  expect((await plane.waitTask(next.id)).status).toBe("succeeded");
}, 60_000);

test("a task goes to another worker when a claim has failed, and the bad one rests", async () => {
  await using ground = await Ground.open({ quarantineMs: 60_000 });
  const { plane } = ground;
  plane.setRunner(sh);
  const bad = await ground.worker({
    slots: 8,
    beforeOpen: () => Promise.reject(new Error("no disk")),
  });
  const workerOf = (id: string) => plane.workers().find((one) => one.id === id);
  await ground.worker();
  for (let count = 0; count < 3; count += 1) {
    const { id } = await plane.submit("true");
    expect(await plane.waitTask(id)).toMatchObject({ status: "succeeded", attempts: 2 });
  }
  await until(() => workerOf(bad.id)?.status === "quarantined");
  expect(workerOf(bad.id)?.failures).toBe(3);
  const rested = await plane.submit("true");
  expect(await plane.waitTask(rested.id)).toMatchObject({ status: "succeeded", attempts: 1 });
  const released = await plane.releaseWorker(bad.id);
  expect(released).toMatchObject({ status: "idle", failures: 0 });
});

test("a worker that is killed while its task runs: worker_lost, and it is not done again", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  let starts = 0;
  plane.setRunner(async (input, context) => {
    starts += 1;
    return await sh(input, context);
  });
  const worker = await ground.process();
  const { id } = await plane.submit(`echo $$ > pid; exec sleep 1000`);
  await ground.has(id, "running");
  const claims = plane.workers()[0]?.claims;
  expect(claims).toEqual([{ taskId: id, epoch: 1 }]);
  await until(() => pidOf(worker.root, id) !== null);
  const pid = pidOf(worker.root, id) ?? 0;
  worker.kill("SIGKILL");
  const task = await plane.waitTask(id);
  expect(task).toMatchObject({ status: "failed", reason: "worker_lost", attempts: 1 });
  process.kill(pid, "SIGKILL");
  await ground.process();
  const next = await plane.submit("true");
  expect((await plane.waitTask(next.id)).status).toBe("succeeded");
  expect(starts).toBe(2);
  expect(await plane.task(id)).toEqual(task);
});

function pidOf(root: string, _id: string): number | null {
  const found = [...new Bun.Glob("**/pid").scanSync({ cwd: root, absolute: true })][0];
  if (found === undefined || !existsSync(found)) return null;
  const pid = Number(readFileSync(found, "utf8"));
  return pid > 0 ? pid : null;
}

test("a task is submitted once, and what is wrong with it is named", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  expect(await failure(plane.submit("x"))).toMatchObject({ field: "runner" });
  plane.setRunner("a", sh).setRunner("b", sh);
  expect(await failure(plane.submit("x"))).toMatchObject({ field: "runner" });
  expect(await failure(plane.submit("x", { runner: "c" }))).toMatchObject({ field: "runner" });
  const runner = "a";
  await plane.submit("x", { runner, id: "one" });
  expect(await failure(plane.submit("x", { runner, id: "one" }))).toMatchObject({
    code: "already_exists",
  });
  const bad: [string, object][] = [
    ["id", { id: "a/b" }],
    ["tenant", { tenant: "-" }],
    ["labels.?", { labels: { "?": "" } }],
    ["env.1", { env: { "1": "" } }],
    ["env", { env: { A: "x".repeat(70_000) } }],
    ["repo_url", { repoUrl: "file:///etc" }],
    ["ref", { ref: "main" }],
    ["ref", { repoUrl: "https://host/a", ref: "-x" }],
  ];
  for (const [field, options] of bad) {
    expect(await failure(plane.submit("x", { runner, ...options }))).toMatchObject({ field });
  }
  const input = Number.NaN as Json;
  expect(await failure(plane.submit(input, { runner }))).toMatchObject({ field: "input" });
});

test("the queue is bounded, for one tenant and for all", async () => {
  await using ground = await Ground.open({ queueMax: 3, queueTenantMax: 2 });
  const { plane } = ground;
  plane.setRunner(sh);
  const submits = (tenant: string, count: number) =>
    Promise.all(
      Array.from({ length: count }, () =>
        plane.submit("x", { tenant }).then(
          () => "taken",
          (error) => error.reason,
        ),
      ),
    );
  expect(await submits("a", 3)).toEqual(["taken", "taken", "QUEUE_FULL"]);
  expect(await submits("b", 2)).toEqual(["taken", "QUEUE_FULL"]);
  const [oldest] = (await plane.tasks({ tenant: "a", limit: 10 })).tasks.slice(-1);
  await plane.cancelTask(oldest?.id ?? "");
  expect(await submits("b", 2)).toEqual(["taken", "QUEUE_FULL"]);
});

test("100 tasks on 10 slots: each runs once; tenants take turns within their limit", async () => {
  await using ground = await Ground.open({ tenantLimit: 3 });
  const { plane } = ground;
  const running = new Map<string, number>();
  let most = 0;
  const order: string[] = [];
  plane.setRunner(async (_, { task }) => {
    const count = (running.get(task.tenant) ?? 0) + 1;
    running.set(task.tenant, count);
    most = Math.max(most, count);
    order.push(task.tenant);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running.set(task.tenant, (running.get(task.tenant) ?? 0) - 1);
    return task.id;
  });
  const ids: string[] = [];
  for (let at = 0; at < 90; at += 1) ids.push((await plane.submit(at, { tenant: "a" })).id);
  for (let at = 0; at < 10; at += 1) ids.push((await plane.submit(at, { tenant: "b" })).id);
  await ground.worker({ slots: 10, isIdle: true });
  const ended = await Promise.all(ids.map((id) => plane.waitTask(id)));
  expect(ended.map(({ result }) => result)).toEqual(ids);
  expect(ended.every(({ attempts }) => attempts === 1)).toBe(true);
  expect(order.length).toBe(100);
  expect(most).toBe(3);
  // Tenant b came last, and is not served last.
  expect(order.lastIndexOf("b")).toBeLessThan(50);
});

test("a task says why it waits, and goes on once that is gone", async () => {
  await using ground = await Ground.open({ tenantLimit: 1 });
  const { plane } = ground;
  const { opened, open } = gate();
  plane.setRunner(async () => await opened);
  const why = async (id: string) => (await plane.task(id)).waiting?.code;
  const labelled = await plane.submit(1, { labels: { gpu: "1" } });
  expect(labelled.waiting?.code).toBe("no_worker_matches");
  await ground.worker({ isIdle: true });
  const first = await plane.submit(2);
  await ground.has(first.id, "running");
  const second = await plane.submit(3);
  const other = await plane.submit(4, { tenant: "b" });
  expect(await why(second.id)).toBe("tenant_limit");
  expect(await why(other.id)).toBe("all_busy");
  expect((await plane.task(labelled.id)).waiting?.detail).toContain("gpu=1");
  await ground.worker({ isIdle: true, labels: { gpu: "1" } });
  open();
  for (const { id } of [labelled, first, second, other]) {
    expect((await plane.waitTask(id)).status).toBe("succeeded");
  }
});

test("in memory, a task that ended long ago is forgotten; one that has not ended is not", async () => {
  let now = 1_800_000_000_000;
  const clock = { now: () => now, monotonicMs: () => performance.now() };
  await using ground = await Ground.open({ clock, keptMs: 600_000 });
  const { plane } = ground;
  plane.setRunner(async () => "done");
  const waiting = await plane.submit(0, { labels: { none: "1" } });
  await ground.worker({ isIdle: true });
  const old = await plane.submit(1);
  await plane.waitTask(old.id);
  now += 590_000;
  const young = await plane.submit(2);
  await plane.waitTask(young.id);
  expect(await plane.task(old.id)).toMatchObject({ status: "succeeded" });
  now += 61_000;
  await plane.submit(3);
  await expect(plane.task(old.id)).rejects.toMatchObject({ code: "not_found" });
  expect(await plane.task(young.id)).toMatchObject({ status: "succeeded" });
  expect(await plane.task(waiting.id)).toMatchObject({ status: "queued" });
});
