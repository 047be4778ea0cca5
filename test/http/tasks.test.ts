// /v1/tasks, /v1/workers and /v1/worker-tokens over a control plane with real workers.

import { afterEach, expect, test } from "bun:test";
import type { ControlPlaneCreateOptions } from "../../src/control-plane/control-plane-options.ts";
import { invalid } from "../../src/core/errors.ts";
import { Feed } from "../../src/record/feed.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { Ground } from "../control-plane/ground.ts";
import { type Ask, echoRunner, KEY_A, KEY_ADMIN, KEY_B, useApp } from "./fixture.ts";

let ground: Ground;

afterEach(async () => {
  await ground[Symbol.asyncDispose]();
});

/** What a runner refuses is refused before it is queued. */
function refuseOdd(input: unknown): void {
  if (input === "odd") throw invalid("input.commands", "Cannot use input.commands: odd");
}

async function useTasks(
  options: ControlPlaneCreateOptions = {},
  app: Parameters<typeof useApp>[0] = {},
) {
  const store = memoryStore();
  const feed = new Feed(store.events);
  ground = await Ground.open({ store, feed, ...options });
  ground.plane.setRunner("shell", echoRunner);
  const tasks = { control: ground.plane, feed, runners: { shell: refuseOdd } };
  const used = await useApp({ ...app, app: { tasks, ...app.app } });
  const submit = async (input: unknown, more: object = {}, how: Ask = {}) =>
    await used.ask("/v1/tasks", { body: { input, ...more }, ...how });
  return { ...used, submit };
}

/** The data of each event of a stream, in order. */
function eventsOf(text: string): { id: number; kind: string; data: Record<string, unknown> }[] {
  return [...text.matchAll(/^id: (\d+)\nevent: (\w+)\ndata: (.*)$/gm)].map((found) => ({
    id: Number(found[1]),
    kind: found[2] ?? "",
    data: JSON.parse(found[3] ?? "").data,
  }));
}

test("a task waits, says why, is done by a worker, and keeps its result", async () => {
  const { ask, submit } = await useTasks();
  const made = await submit({ commands: ["true"] }, { labels: { os: "linux" } });
  expect(made.status).toBe(201);
  expect(made.headers.get("location")).toBe(`/v1/tasks/${made.json.task_id}`);
  expect(made.json).toMatchObject({
    tenant: "a",
    status: "queued",
    runner: "shell",
    waiting: { code: "no_worker_matches" },
    labels: { os: "linux" },
    attempts: 0,
    worker_id: null,
    finished_at: null,
  });
  const path = `/v1/tasks/${made.json.task_id}`;
  const waiting = ask(`${path}?wait_seconds=30`);
  const { id } = await ground.worker({ labels: { os: "linux" }, isIdle: true });
  const { status, json } = await waiting;
  expect(status).toBe(200);
  expect(json).toMatchObject({ status: "succeeded", reason: "exit", worker_id: id, attempts: 1 });
  expect(json.result).toEqual({ commands: ["true"] });
  expect(json.waiting).toBeUndefined();
});

test("a wait for a task that goes on ends with what it is", async () => {
  const { ask, submit } = await useTasks();
  const { json } = await submit("x");
  const startedAt = performance.now();
  const answer = await ask(`/v1/tasks/${json.task_id}?wait_seconds=0.2`);
  expect([answer.status, answer.json.status]).toEqual([200, "queued"]);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(190);
});

test("the events of a task come to its end, and again from any place", async () => {
  const { ask, submit } = await useTasks();
  const { json } = await submit("hello");
  const following = ask(`/v1/tasks/${json.task_id}/events`);
  await ground.worker({ isIdle: true });
  const events = eventsOf((await following).text);
  expect(events.map(({ kind }) => kind)).toEqual(["task", "task", "task", "stdout", "finished"]);
  expect(events.map(({ data }) => data["status"])).toEqual([
    "queued",
    "claiming",
    "running",
    undefined,
    "succeeded",
  ]);
  expect(String(events[3]?.data)).toContain('input "hello"');
  const headers = { "Last-Event-ID": "3" };
  const rest = await ask(`/v1/tasks/${json.task_id}/events`, { headers });
  expect(eventsOf(rest.text).map(({ id }) => id)).toEqual([4, 5]);
});

test("a task is cancelled while it waits and while it runs, once", async () => {
  const { ask, submit } = await useTasks();
  const queued = (await submit("x")).json.task_id;
  const first = await ask(`/v1/tasks/${queued}`, { method: "DELETE" });
  expect([first.status, first.json.status, first.json.reason]).toEqual([200, "cancelled", "user"]);
  const again = await ask(`/v1/tasks/${queued}`, { method: "DELETE" });
  expect([again.status, again.json.reason]).toEqual([409, "TASK_STATUS"]);
  await ground.worker({ isIdle: true });
  const running = (await submit("hang")).json.task_id;
  await ground.has(running, "running");
  const ended = await ask(`/v1/tasks/${running}`, { method: "DELETE" });
  expect([ended.status, ended.json.status]).toEqual([200, "cancelled"]);
  expect((await ask("/v1/tasks?status=cancelled")).json.tasks).toHaveLength(2);
});

test("a cancel that takes long answers before it is done", async () => {
  const { ask, submit } = await useTasks({}, { app: { cancelWaitMs: 20 } });
  let letGo = (): void => undefined;
  const held = new Promise<null>((resolve) => {
    letGo = () => resolve(null);
  });
  ground.plane.setRunner("shell", () => held);
  await ground.worker({ isIdle: true });
  const id = (await submit("x")).json.task_id;
  await ground.has(id, "running");
  const answer = await ask(`/v1/tasks/${id}`, { method: "DELETE" });
  letGo();
  expect([200, 202]).toContain(answer.status);
  const end = await ask(`/v1/tasks/${id}?wait_seconds=30`);
  expect(end.json.status).toBe("cancelled");
});

test("tasks are listed in pages, newest first, without inputs and results", async () => {
  const { ask, submit } = await useTasks();
  const ids: string[] = [];
  for (const input of [1, 2, 3]) ids.unshift((await submit(input)).json.task_id);
  await submit("theirs", {}, { key: KEY_B });
  const first = (await ask("/v1/tasks?limit=2")).json;
  const second = (await ask(`/v1/tasks?limit=2&cursor=${first.next_cursor}`)).json;
  const found = [...first.tasks, ...second.tasks];
  expect(found.map(({ task_id: id }: { task_id: string }) => id)).toEqual(ids);
  expect(second.next_cursor).toBeNull();
  expect(Object.keys(found[0])).not.toContain("input");
  expect(Object.keys(found[0])).not.toContain("result");
  expect((await ask("/v1/tasks?limit=101")).status).toBe(400);
  expect((await ask("/v1/tasks?cursor=jobs.x.y")).json.field).toBe("cursor");
});

test("what is wrong with a task is said, with the field's name", async () => {
  const { ask, submit } = await useTasks();
  const field = async (body: unknown) => {
    const { status, json } = await ask("/v1/tasks", { body });
    return [status, json.field];
  };
  expect(await field({})).toEqual([400, "input"]);
  expect(await field({ input: 1, runner: "bash" })).toEqual([400, "runner"]);
  expect(await field({ input: 1, nothing: 1 })).toEqual([400, "nothing"]);
  expect(await field({ input: 1, labels: { x: 1 } })).toEqual([400, "labels.x"]);
  expect(await field({ input: 1, env: { "1x": "" } })).toEqual([400, "env.1x"]);
  expect(await field('{"input":1,"env":{"__proto__":"x"}}')).toEqual([400, "env.__proto__"]);
  expect(await field({ input: 1, ref: "main" })).toEqual([400, "ref"]);
  expect((await field({ input: 1, repo_url: "file:///etc" }))[0]).toBe(400);
  const odd = await submit("odd");
  expect([odd.status, odd.json.field]).toEqual([400, "input.commands"]);
  expect((await ask("/v1/tasks")).json.tasks).toEqual([]);
  const agent = await submit("do it", { runner: "agent" });
  expect([agent.status, agent.json.reason]).toEqual([400, "RUNNER_OFF"]);
  expect(agent.json.hint).toContain("CPRG_AGENT_MODEL");
});

test("variables of a task are in no answer, event or list", async () => {
  const { ask, submit } = await useTasks();
  const env = { SECRET: "value-of-the-secret-0123456789" };
  const made = await submit("x", { env });
  const path = `/v1/tasks/${made.json.task_id}`;
  const following = ask(`${path}/events`);
  await ground.worker({ isIdle: true });
  const answers = [made, await following, await ask(path), await ask("/v1/tasks")];
  for (const { text } of answers) expect(text).not.toContain(env.SECRET);
});

test("a full queue is 503 with a Retry-After, a full store 507", async () => {
  const { submit } = await useTasks({ queueTenantMax: 1, queueMax: 2 });
  expect((await submit(1)).status).toBe(201);
  const full = await submit(2);
  expect([full.status, full.json.reason]).toEqual([503, "QUEUE_FULL"]);
  expect(Number(full.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await submit(3, {}, { key: KEY_B })).status).toBe(201);
  await ground[Symbol.asyncDispose]();
  const small = await useTasks({ tenantBytesMax: 1000 });
  expect((await small.submit("x".repeat(2000))).status).toBe(201);
  const stored = await small.submit(1);
  expect([stored.status, stored.json.reason]).toEqual([507, "TENANT_STORAGE_FULL"]);
  expect((await small.submit(1, {}, { key: KEY_B })).status).toBe(201);
});

test("a tenant sees its own workers and shared ones, and no claims of others", async () => {
  const { ask, submit } = await useTasks();
  const mint = async (tenants: readonly string[] | null) =>
    (await ground.plane.mintWorkerToken({ tenants, expiresInSeconds: 60 })).token;
  const ofA = await ground.worker({ token: await mint(["a"]), isIdle: true });
  const ofB = await ground.worker({ token: await mint(["b"]), isIdle: true });
  const shared = await ground.worker({ isIdle: true });
  const seen = async (key: string) => {
    const { workers } = (await ask("/v1/workers", { key })).json;
    return new Set(workers.map(({ worker_id: id }: { worker_id: string }) => id));
  };
  expect(await seen(KEY_A)).toEqual(new Set([ofA.id, shared.id]));
  expect(await seen(KEY_B)).toEqual(new Set([ofB.id, shared.id]));
  expect(await seen(KEY_ADMIN)).toEqual(new Set([ofA.id, ofB.id, shared.id]));
  const running = (await submit("hang", {}, { key: KEY_B })).json.task_id;
  const { workerId } = await ground.has(running, "running");
  const asTenant = await ask("/v1/workers", { key: KEY_A });
  expect(asTenant.text).not.toContain(running);
  expect(asTenant.text).not.toContain("tenants");
  const asAdmin = (await ask("/v1/workers", { key: KEY_ADMIN })).json.workers;
  const busy = asAdmin.find(({ worker_id: id }: { worker_id: string }) => id === workerId);
  expect(busy).toMatchObject({ state: "busy", busy_slots: 1, claims: [{ task_id: running }] });
});

test("an administrator releases, drains and removes workers; a tenant may not", async () => {
  const { ask, submit } = await useTasks();
  const { id } = await ground.worker({ isIdle: true });
  const running = (await submit("hang")).json.task_id;
  await ground.has(running, "running");
  const act = async (path: string, method: string, key = KEY_ADMIN) =>
    await ask(`/v1/workers/${path}`, { method, key });
  expect((await act(`${id}/release`, "POST", KEY_A)).status).toBe(403);
  const released = await act(`${id}/release`, "POST");
  expect([released.status, released.json.worker_id]).toEqual([200, id]);
  const failed = (await ask(`/v1/tasks/${running}?wait_seconds=30`)).json;
  expect([failed.status, failed.error]).toEqual(["failed", "its worker was released"]);
  expect((await submit("again", {})).status).toBe(201);
  const drained = await act(`${id}/drain`, "POST");
  expect([drained.status, drained.json.worker_id]).toEqual([200, id]);
  expect((await act("nobody/release", "POST")).status).toBe(404);
  expect((await act("nobody/drain", "POST")).status).toBe(404);
  expect((await act("nobody", "DELETE")).status).toBe(404);
  const other = await ground.worker({ isIdle: true });
  expect((await act(other.id, "DELETE", KEY_A)).status).toBe(403);
  expect((await act(other.id, "DELETE")).status).toBe(204);
});

test("a token is shown once, lets its worker in, and is revoked", async () => {
  const { ask } = await useTasks();
  const how = { key: KEY_ADMIN };
  const body = {
    worker_id: "ci-*",
    labels: { gpu: "yes" },
    tenants: ["a"],
    expires_in_seconds: 600,
    name: "ci",
  };
  expect((await ask("/v1/worker-tokens", { body, key: KEY_A })).status).toBe(403);
  const made = await ask("/v1/worker-tokens", { body, ...how });
  expect(made.status).toBe(201);
  const { token, token_id: tokenId } = made.json;
  expect(made.headers.get("location")).toBe(`/v1/worker-tokens/${tokenId}`);
  const listed = await ask("/v1/worker-tokens", how);
  expect(listed.text).not.toContain(token);
  expect(listed.json.worker_tokens).toMatchObject([
    { token_id: tokenId, worker_id: "ci-*", labels: { gpu: "yes" }, tenants: ["a"], name: "ci" },
  ]);
  await ground.worker({ token, id: "ci-1", labels: { gpu: "no" }, isIdle: true });
  expect((await ask("/v1/workers")).json.workers[0].labels).toEqual({ gpu: "yes" });
  const path = `/v1/worker-tokens/${tokenId}`;
  const revoked = await ask(path, { method: "DELETE", ...how });
  expect([revoked.status, typeof revoked.json.revoked_at]).toEqual([200, "string"]);
  expect((await ask(path, { method: "DELETE", ...how })).status).toBe(200);
  expect((await ask("/v1/worker-tokens/none", { method: "DELETE", ...how })).status).toBe(404);
  const bad = await ask("/v1/worker-tokens", { body: { expires_in_seconds: 0 }, ...how });
  expect(bad.status).toBe(400);
  expect((await ask("/v1/worker-tokens", { body: {}, ...how })).json.field).toBe(
    "expires_in_seconds",
  );
});

test("what is done to tasks, workers and tokens is in the audit log, without secrets", async () => {
  const { ask, submit, tenancy } = await useTasks();
  const task = (await submit("x")).json.task_id;
  await ask(`/v1/tasks/${task}`, { method: "DELETE" });
  const { id } = await ground.worker({ isIdle: true });
  const how = { key: KEY_ADMIN };
  const body = { expires_in_seconds: 60 };
  const { token, token_id: tokenId } = (await ask("/v1/worker-tokens", { body, ...how })).json;
  await ask(`/v1/worker-tokens/${tokenId}`, { method: "DELETE", ...how });
  for (const verb of ["release", "drain"]) {
    await ask(`/v1/workers/${id}/${verb}`, { method: "POST", ...how });
  }
  await ask(`/v1/workers/not-there`, { method: "DELETE", ...how });
  await tenancy.audit.flush();
  const { text } = await ask("/v1/audit", how);
  const records = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line))
    .filter(({ kind }) => kind === "audit")
    .map(({ data }) => [data.action, data.object, data.outcome]);
  for (const record of [
    ["task.submit", task, "ok"],
    ["task.cancel", task, "ok"],
    ["worker_token.create", tokenId, "ok"],
    ["worker_token.revoke", tokenId, "ok"],
    ["worker.release", id, "ok"],
    ["worker.drain", id, "ok"],
    ["worker.remove", null, "refused"],
  ]) {
    expect(records).toContainEqual(record);
  }
  expect(text).not.toContain(token);
});

test("metrics count workers by their state", async () => {
  const { ask, submit } = await useTasks();
  await ground.worker({ isIdle: true });
  await ground.worker({ isIdle: true, slots: 3 });
  await ground.has((await submit("hang")).json.task_id, "running");
  const { text } = await ask("/v1/metrics", { key: KEY_ADMIN });
  expect(text).toMatch(/^cprg_workers\{state="idle"\} 1$/m);
  expect(text).toMatch(/^cprg_workers\{state="busy"\} 1$/m);
  expect(text).toMatch(/^cprg_worker_claims 1$/m);
  expect(text).toMatch(/^cprg_worker_slots 4$/m);
});

test("what a server was started without is 501, with what to do", async () => {
  const plane = await useTasks({}, { app: { hasEngine: false } });
  const languages = await plane.ask("/v1/languages");
  expect([languages.status, languages.json.reason]).toEqual([501, "NO_ENGINE"]);
  expect((await plane.ask("/v1/languages", { key: null })).status).toBe(401);
  // Jobs and sandboxes of a control plane run on its workers.
  for (const path of ["/v1/status", "/healthz", "/v1/tasks", "/v1/jobs", "/v1/sandboxes"]) {
    expect([path, (await plane.ask(path)).status]).toEqual([path, 200]);
  }
  const { app, options } = await useApp();
  expect(app).toBeDefined();
  const { tasks: _, ...without } = options;
  const { createApp } = await import("../../src/http/app.ts");
  const bare = createApp(without);
  const headers = { Authorization: `Bearer ${KEY_ADMIN}` };
  for (const path of ["/v1/tasks", "/v1/tasks/x/events", "/v1/workers", "/v1/worker-tokens"]) {
    const answer = await bare.request(path, { headers });
    const { reason } = (await answer.json()) as { reason: string };
    expect([path, answer.status, reason]).toEqual([path, 501, "NO_BRIDGE"]);
  }
  const nothing = createApp({ ...without, hasEngine: false });
  for (const path of ["/v1/jobs", "/v1/sandboxes", "/v1/execs/x", "/v1/languages"]) {
    const answer = await nothing.request(path, { headers });
    const { reason } = (await answer.json()) as { reason: string };
    expect([path, answer.status, reason]).toEqual([path, 501, "NO_ENGINE"]);
  }
});
