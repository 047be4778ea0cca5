// Sandboxes on real workers, over /v1/sandboxes and /v1/execs.

import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { EventRow } from "../../src/core/event.ts";
import { newId } from "../../src/core/ids.ts";
import { until } from "../control-plane/ground.ts";
import { startProxy } from "../worker/proxy.ts";
import { KEY_B, useApp } from "./fixture.ts";
import { pause, usePlaced } from "./placed-ground.ts";

const LINUX = { placement: { labels: { os: "linux" } } };

describe("a sandbox on a worker", () => {
  test("is a claim of one that has the labels, and its end gives the claim back", async () => {
    await using used = await usePlaced();
    await used.ground.worker({ labels: { os: "other" } });
    const { id } = await used.ground.worker({ labels: { os: "linux", more: "1" } });
    const sandbox = await used.open(LINUX);
    expect(sandbox).toMatchObject({ status: "open", worker_id: id, ...LINUX });
    const claims = () => used.ground.plane.workers().flatMap((one) => one.claims);
    expect(claims()).toEqual([{ taskId: sandbox.sandbox_id, epoch: 1 }]);
    const path = `/v1/sandboxes/${sandbox.sandbox_id}`;
    expect((await used.ask(path)).json).toEqual(sandbox);
    const ended = await used.ask(path, { method: "DELETE" });
    expect(ended.json).toMatchObject({ status: "ended", reason: "user", worker_id: id });
    expect(claims()).toEqual([]);
    // The claim is free for the next one.
    expect((await used.open(LINUX)).worker_id).toBe(id);
  });

  test("runs programs with input, arguments and variables, and keeps a log of each", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const { sandbox_id: id } = await used.open({ env: { OF_ALL: "sandbox" } });
    const result = await used.sh(id, 'read line; echo "$line $OF_ALL $OWN"; echo no >&2; exit 3', {
      stdin: "typed\n",
      env: { OWN: "exec" },
    });
    expect(result).toMatchObject({
      status: "failed",
      exit_code: 3,
      reason: "exit",
      stdout: "typed sandbox exec\n",
      stderr: "no\n",
    });
    const { events, complete } = (await used.ask(`/v1/execs/${result.exec_id}/replay`)).json;
    expect(complete).toBe(true);
    const kinds = (events as EventRow[]).map(({ kind }) => kind);
    expect([kinds[0], kinds.at(-1)]).toEqual(["started", "finished"]);
    // A worker without a sandbox says so.
    expect(events[0].data.layers).toMatchObject({ namespaces: false, seccomp: false });
    expect(events[0].data.missing).toContain("cgroup");
    const sealed = await used.ask(`/v1/execs/${result.exec_id}/replay?format=ndjson`);
    expect(sealed.status).toBe(200);
  });

  test("has a terminal: keys, size, the end of input", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const { sandbox_id: id } = await used.open();
    const script = 'stty size; trap "stty size; exit 0" WINCH; while :; do sleep 0.05; done';
    const started = await used.ask(`/v1/sandboxes/${id}/execs`, {
      body: { argv: ["/bin/sh", "-c", script], tty: { columns: 90, rows: 30 } },
    });
    expect(started.status).toBe(202);
    const path = `/v1/execs/${started.json.exec_id}`;
    const seen = async (text: string) => {
      for (;;) {
        const { events } = (await used.ask(`${path}/replay`)).json;
        const out = (events as EventRow[]).filter(({ kind }) => kind === "stdout");
        const all = out.map(({ data }) => String(data)).join("");
        if (all.includes(text)) return all;
        await pause();
      }
    };
    expect(await seen("30 90")).toContain("30 90");
    const resized = await used.ask(`${path}/resize`, { body: { columns: 100, rows: 40 } });
    expect(resized.status).toBe(204);
    const ended = await used.ask(`${path}/result?wait_seconds=20`);
    expect(ended.json).toMatchObject({ exit_code: 0, status: "succeeded" });
    expect(ended.json.stdout).toContain("40 100");
  });

  test("takes input piece by piece, signals, and a cancel", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const { sandbox_id: id } = await used.open();
    const start = async (script: string, more: object = {}) => {
      const body = { argv: ["/bin/sh", "-c", script], stdin_open: true, ...more };
      return (await used.ask(`/v1/sandboxes/${id}/execs`, { body })).json.exec_id as string;
    };
    const cat = await start("cat");
    const send = async (body: string, query = "") =>
      (await used.ask(`/v1/execs/${cat}/input${query}`, { body })).status;
    expect([await send("one "), await send("two", "?eof=true")]).toEqual([204, 204]);
    const result = await used.ask(`/v1/execs/${cat}/result?wait_seconds=20`);
    expect(result.json).toMatchObject({ stdout: "one two", exit_code: 0 });

    const trapped = await start('trap "exit 7" USR1; echo up; while :; do sleep 0.05; done');
    const up = async () => (await used.ask(`/v1/execs/${trapped}/replay`)).text.includes("up\\n");
    while (!(await up())) await pause();
    const signal = async (name: string) =>
      await used.ask(`/v1/execs/${trapped}/signal`, { body: { signal: name } });
    expect([(await signal("SIGUSR1")).status]).toEqual([204]);
    const ended = await used.ask(`/v1/execs/${trapped}/result?wait_seconds=20`);
    expect(ended.json).toMatchObject({ exit_code: 7 });

    const hanging = await start("sleep 600");
    const refused = await used.ask(`/v1/execs/${hanging}/signal`, { body: { signal: "SIGSEGV" } });
    expect([refused.status, refused.json.field]).toEqual([400, "signal"]);
    const size = await used.ask(`/v1/execs/${hanging}/resize`, { body: { columns: 1, rows: 1 } });
    expect([size.status, size.json.reason]).toEqual([400, "NO_TERMINAL"]);
    const cancelled = await used.ask(`/v1/execs/${hanging}`, { method: "DELETE" });
    expect(cancelled.json).toMatchObject({ status: "cancelled", reason: "user" });
  });

  test("bounds the time and the output of a program, and says so", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const { sandbox_id: id } = await used.open();
    const late = await used.sh(id, "sleep 600", { limits: { wall_seconds: 0.2 } });
    expect(late).toMatchObject({ status: "timed_out", reason: "wall_limit" });
    expect(late.limits_hit).toMatchObject([{ limit: "wall_seconds", value: 0.2, sampled: false }]);
    const script = "head -c 3000 /dev/zero | tr '\\0' x; echo end >&2";
    const long = await used.sh(id, script, { limits: { output_kb: 1 } });
    expect(long).toMatchObject({ exit_code: 0, stderr: "end\n" });
    expect(long.stdout).toBe("x".repeat(1024));
    expect([long.truncated, long.limits_hit[0].limit]).toEqual([true, "output_kb"]);
  });

  test("moves files and trees, and removes them", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const { sandbox_id: id } = await used.open();
    const files = `/v1/sandboxes/${id}/files`;
    const bytes = new Uint8Array(300_000).map((_, at) => at % 251);
    const put = async (path: string, body: Uint8Array, type: string) => {
      const headers = { "Content-Type": type, "Content-Length": `${body.length}` };
      return (await used.ask(`${files}/${path}`, { method: "PUT", body, headers })).status;
    };
    expect(await put("a/b.bin", bytes, "application/octet-stream")).toBe(204);
    const count = await used.sh(id, "wc -c < a/b.bin; chmod 700 a/b.bin; ln -s b.bin a/link");
    expect(count.stdout.trim()).toBe("300000");
    const got = await used.app.request(`${files}/a/b.bin`, {
      headers: { Authorization: "Bearer tenant-a-key-0123456789" },
    });
    expect(new Uint8Array(await got.arrayBuffer())).toEqual(bytes);
    const tree = await used.app.request(`${files}/a`, {
      headers: { Authorization: "Bearer tenant-a-key-0123456789", Accept: "application/x-tar" },
    });
    const tar = new Uint8Array(await tree.arrayBuffer());
    expect(tree.status).toBe(200);
    expect(await put("c", tar, "application/x-tar")).toBe(204);
    const seen = await used.sh(id, "stat -c %a c/b.bin; readlink c/link; cmp a/b.bin c/b.bin");
    expect([seen.exit_code, seen.stdout]).toEqual([0, "700\nb.bin\n"]);
    expect((await used.ask(`${files}/c`, { method: "DELETE" })).status).toBe(204);
    expect((await used.ask(`${files}/c/b.bin`)).status).toBe(404);
    const outside = await used.ask(`${files}/%2Fetc%2Fpasswd`);
    expect(outside.status).toBe(403);
  });

  test("ends when nothing happens in it, and after its lifetime", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const idle = await used.open({ idle_seconds: 1 });
    expect(await used.ended(idle.sandbox_id)).toMatchObject({ reason: "idle" });
    const short = await used.open({ lifetime_seconds: 1 });
    const exec = await used.sh(short.sandbox_id, "sleep 600");
    expect(exec).toMatchObject({ status: "error", reason: "lifetime" });
    expect(await used.ended(short.sandbox_id)).toMatchObject({ reason: "lifetime" });
    expect(used.ground.plane.workers().flatMap((one) => one.claims)).toEqual([]);
  });
});

describe("the loss of a worker", () => {
  test("ends what runs in its sandbox, and the sandbox, as worker_lost", async () => {
    await using used = await usePlaced();
    const worker = await used.ground.process();
    const { sandbox_id: id } = await used.open();
    const running = used.sh(id, "echo up; sleep 600");
    const list = async () => (await used.ask(`/v1/sandboxes/${id}/execs`)).json.execs;
    while ((await list()).length === 0) await pause();
    worker.kill("SIGKILL");
    expect(await running).toMatchObject({ status: "error", reason: "worker_lost" });
    expect(await used.ended(id)).toMatchObject({ status: "ended", reason: "worker_lost" });
    const later = await used.ask(`/v1/sandboxes/${id}/execs`, { body: { argv: ["x"] } });
    expect([later.status, later.json.reason]).toEqual([409, "SANDBOX_ENDED"]);
    expect(later.json.hint).toContain("worker_lost");
  });

  test("by an administrator's release interrupts it", async () => {
    await using used = await usePlaced();
    const { id } = await used.ground.worker();
    const sandbox = await used.open();
    const running = used.sh(sandbox.sandbox_id, "sleep 600");
    const list = `/v1/sandboxes/${sandbox.sandbox_id}/execs`;
    while ((await used.ask(list)).json.execs.length === 0) await pause();
    await used.ground.plane.releaseWorker(id);
    expect((await running).status).toBe("error");
    expect(await used.ended(sandbox.sandbox_id)).toMatchObject({ reason: "interrupted" });
  });

  test("for a moment loses nothing", async () => {
    await using used = await usePlaced();
    const proxy = await startProxy(used.ground.port);
    await used.ground.worker({ port: proxy.port });
    const { sandbox_id } = await used.open();
    const running = used.sh(sandbox_id, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done");
    const list = `/v1/sandboxes/${sandbox_id}/execs`;
    while ((await used.ask(list)).json.execs.length === 0) await pause();
    proxy.cut();
    expect(await running).toMatchObject({ exit_code: 0, stdout: "1\n2\n3\n4\n5\n6\n7\n8\n" });
    expect(proxy.connections).toBeGreaterThan(1);
    await proxy.close();
  });
});

describe("where no worker is free", () => {
  test("that matches none is said at once; all busy, after a while", async () => {
    await using used = await usePlaced();
    const none = await used.create(LINUX);
    expect([none.status, none.json.reason]).toEqual([503, "NO_WORKER_MATCHES"]);
    expect(none.json).toMatchObject({ field: "placement", code: "unavailable" });
    expect(none.json.detail).toContain("no worker is connected");
    await used.ground.worker({ labels: { os: "linux" } });
    const other = await used.create({ placement: { labels: { os: "linux", gpu: "1" } } });
    expect([other.status, other.json.reason]).toEqual([503, "NO_WORKER_MATCHES"]);
    await used.open(LINUX);
    const startedAt = performance.now();
    const busy = await used.create(LINUX);
    expect([busy.status, busy.json.reason]).toEqual([503, "ALL_BUSY"]);
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(290);
    expect(busy.headers.get("retry-after")).toBe("5");
  });

  test("the next is opened as soon as one is", async () => {
    await using used = await usePlaced({ app: { sandboxes: { admissionWaitMs: 20_000 } } });
    await used.ground.worker();
    const first = await used.open();
    const second = used.create();
    await until(() => used.options.sandboxes.count("a") === 2);
    await used.ask(`/v1/sandboxes/${first.sandbox_id}`, { method: "DELETE" });
    expect((await second).status).toBe(201);
  });

  test("a tenant has no more claims than it may, of sandboxes and tasks together", async () => {
    await using used = await usePlaced({ plane: { tenantLimit: 1 } });
    await used.ground.worker({ slots: 4 });
    await used.open();
    const more = await used.create();
    expect([more.status, more.json.reason]).toEqual([503, "TENANT_LIMIT"]);
    expect((await used.create({}, { key: KEY_B })).status).toBe(201);
    used.ground.plane.setRunner("shell", async () => 1);
    const task = await used.ground.plane.submit(1, { tenant: "a", runner: "shell" });
    expect(task.waiting?.code).toBe("tenant_limit");
  });

  test("one that refuses the claim is not asked again for it; another is", async () => {
    await using used = await usePlaced();
    const refuse = async (): Promise<void> => {
      throw new Error("no room on this host");
    };
    await used.ground.worker({ id: "broken", slots: 3, beforeOpen: refuse });
    await used.ground.worker({ id: "good" });
    const { sandbox_id, worker_id } = await used.open();
    expect(worker_id).toBe("good");
    await used.ask(`/v1/sandboxes/${sandbox_id}`, { method: "DELETE" });
  });
});

describe("tenants", () => {
  test("a foreign worker is never chosen, and a foreign sandbox is not there", async () => {
    await using used = await usePlaced();
    const minted = await used.ground.plane.mintWorkerToken({
      expiresInSeconds: 600,
      tenants: ["b"],
    });
    await used.ground.worker({ token: minted.token, id: "of-b" });
    const refused = await used.create();
    expect([refused.status, refused.json.reason]).toEqual([503, "NO_WORKER_MATCHES"]);
    const own = await used.create({}, { key: KEY_B });
    expect([own.status, own.json.worker_id]).toEqual([201, "of-b"]);
    const id = own.json.sandbox_id;
    for (const [method, path, body] of [
      ["GET", "", undefined],
      ["DELETE", "", undefined],
      ["POST", "/execs", { argv: ["x"] }],
      ["GET", "/files/x", undefined],
    ] as const) {
      const answer = await used.ask(`/v1/sandboxes/${id}${path}`, { method, body });
      expect([method, path, answer.status]).toEqual([method, path, 404]);
    }
    expect((await used.ask(`/v1/sandboxes/${newId()}`)).status).toBe(404);
  });
});

describe("limits", () => {
  test("that a worker cannot enforce are not promised by one", async () => {
    await using used = await usePlaced();
    await used.ground.worker();
    const bounded = await used.create({ limits: { mem_mb: 64 } });
    expect([bounded.status, bounded.json.reason]).toEqual([503, "NO_WORKER_MATCHES"]);
    expect(bounded.json.detail).toContain("enforces limits");
    const { sandbox_id: id } = await used.open({ limits: { wall_seconds: 5, output_kb: 16 } });
    const exec = { argv: ["x"], limits: { cpu_seconds: 1 } };
    const refused = await used.ask(`/v1/sandboxes/${id}/execs`, { body: exec });
    expect([refused.status, refused.json.reason]).toEqual([400, "LIMIT_NOT_ENFORCED"]);
    expect(refused.json.field).toBe("limits.cpu_seconds");
  });
});

describe("what is asked for", () => {
  const WRONG: readonly (readonly [unknown, string])[] = [
    ["here", "placement"],
    [[], "placement"],
    [{ label: {} }, "placement.label"],
    [{ labels: [] }, "placement.labels"],
    [{ labels: { a: 1 } }, "placement.labels.a"],
    [{ labels: { "a b": "x" } }, "placement.labels.a b"],
    [{ labels: {}, zone: "x" }, "placement.zone"],
  ];
  test.each(WRONG)("is read strictly: %j", async (placement, field) => {
    await using used = await usePlaced();
    const answer = await used.ask("/v1/sandboxes", { body: { placement } });
    expect([answer.status, answer.json.field]).toEqual([400, field]);
  });

  test("__proto__ is no label", async () => {
    await using used = await usePlaced();
    const body = '{"placement":{"labels":{"__proto__":"x"}}}';
    const answer = await used.ask("/v1/sandboxes", { body });
    expect([answer.status, answer.json.field]).toEqual([400, "placement.labels.__proto__"]);
  });

  test("cannot be had from a server without workers", async () => {
    const { ask } = await useApp();
    const answer = await ask("/v1/sandboxes", { body: { placement: {} } });
    expect([answer.status, answer.json.reason]).toEqual([400, "NO_WORKERS"]);
    expect(answer.json.field).toBe("placement");
  });

  test("without placement it is on this host, or on any worker where there is none", async () => {
    await using here = await usePlaced();
    const local = await here.ask("/v1/sandboxes", { body: {} });
    expect(local.json).toMatchObject({ placement: null, worker_id: null });
    await using there = await usePlaced({ app: { sandboxes: { placement: { labels: {} } } } });
    const { id } = await there.ground.worker();
    const placed = await there.ask("/v1/sandboxes", { body: {} });
    expect(placed.json).toMatchObject({ placement: { labels: {} }, worker_id: id });
  });
});

test("the end of the server gives programs on workers their grace, and leaves nothing there", async () => {
  const used = await usePlaced();
  const worker = await used.ground.process();
  const { sandbox_id: id } = await used.open();
  const running = used.sh(
    id,
    'trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done',
  );
  const list = async () => (await used.ask(`/v1/sandboxes/${id}/execs`)).json.execs;
  while ((await list()).length === 0) await pause();
  const exec = (await list())[0].exec_id;
  while (!(await used.ask(`/v1/execs/${exec}/replay`)).text.includes("up\\n")) await pause();
  const leases = used.options.sandboxes.stop(5000);
  await used.ground.plane.stop({ graceMs: 5000, leases });
  expect(await running).toMatchObject({ reason: "shutdown", stdout: "up\nbye\n" });
  expect(readdirSync(worker.root)).toEqual([]);
  await used[Symbol.asyncDispose]();
});
