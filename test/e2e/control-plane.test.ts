// `cprg control-plane`, `cprg worker` and the commands for tasks, as built, from one end to the other.

import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { makeCertificate } from "../helpers/certificate.ts";
import { requireHost } from "../helpers/host.ts";
import { calls, MODEL_KEY, says, startModelServer } from "../helpers/model-server.ts";
import { call, type Ended, type Home, makeHome, type Running, start } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";
import { until } from "./until.ts";

const BRIDGE = ["--bridge-addr", "127.0.0.1:0"];

/** A command of a client of a server. */
async function ask(server: Serving, home: Home, words: readonly string[]): Promise<Ended> {
  return await call(words, { env: { ...home.env, CPRG_SERVER: server.url, CPRG_KEY: server.key } });
}

async function mint(server: Serving, home: Home, words: readonly string[] = []): Promise<string> {
  const minted = await ask(server, home, ["token", "mint", ...words]);
  expect(minted.code).toBe(0);
  return minted.out.trim();
}

/** A worker on a directory of its own; the token comes over standard input. */
function startWorker(
  bridge: string,
  home: Home,
  { token, name, words = [] }: { token: string; name: string; words?: readonly string[] },
): Running {
  const own = join(home.path, name);
  mkdirSync(own, { recursive: true });
  const worker = start(
    [
      ...["worker", "--connect", bridge, "--token", "-", "--root", join(own, "root")],
      ...["--state-dir", join(own, "state"), ...words],
    ],
    { env: { ...home.env, CPRG_DATA_DIR: own } },
  );
  worker.stdin.write(token);
  void worker.stdin.end();
  return worker;
}

test("a minted token lets a worker in, which does one task and ends", async () => {
  using home = makeHome();
  await using server = await serve(home, { command: "control-plane", words: BRIDGE });
  const submitted = await ask(server, home, ["tasks", "submit", "-c", "echo waited"]);
  expect(submitted.code).toBe(0);
  expect(submitted.err).toContain("waits:");
  const id = submitted.out.trim();
  const token = await mint(server, home, ["--worker", "*", "--label", "kind=test"]);
  const worker = startWorker(server.bridge, home, { token, name: "w1", words: ["--once"] });
  const waited = await ask(server, home, ["tasks", "wait", id, "--json"]);
  expect([waited.code, JSON.parse(waited.out).status]).toEqual([0, "succeeded"]);
  expect(await worker.exited).toBe(0);
  const shown = await ask(server, home, ["tasks", "show", id]);
  expect(shown.out).toContain("status   succeeded");
  expect(JSON.stringify(JSON.parse(waited.out).result)).toContain("waited");
  const logs = await ask(server, home, ["tasks", "logs", id]);
  expect(logs.err).toContain("succeeded");
  const list = await ask(server, home, ["tasks", "list"]);
  expect(list.out).toContain(id);
  expect((await ask(server, home, ["tasks", "cancel", id])).code).not.toBe(0);
  const health = (await (await fetch(`${server.url}/healthz`)).json()) as { sandbox: string };
  expect(health.sandbox).toBe("none");
  expect((await server.request("/v1/jobs", { method: "POST", body: "{}" })).status).toBe(501);
  expect(await server.stop()).toBe(0);
});

test("a task is followed to its end, whose exit code says how it went", async () => {
  using home = makeHome();
  await using server = await serve(home, { command: "control-plane", words: BRIDGE });
  const token = await mint(server, home);
  const worker = startWorker(server.bridge, home, { token, name: "w1" });
  const good = await ask(server, home, [
    ...["tasks", "submit", "-c", "echo $GREETING", "-e", "GREETING=hello", "--wait"],
  ]);
  expect(good.code).toBe(0);
  expect(good.out).toContain("hello");
  const bad = await ask(server, home, ["tasks", "submit", "-c", "exit 7", "--wait"]);
  expect(bad.code).toBe(1);
  const workers = await ask(server, home, ["workers", "list", "--json"]);
  const [view] = JSON.parse(workers.out).workers;
  expect(view).toMatchObject({ state: "idle", slots: 1 });
  expect((await ask(server, home, ["workers", "list"])).out).toContain(view.worker_id);
  const running = (await ask(server, home, ["tasks", "submit", "-c", "sleep 1000"])).out.trim();
  const isRunning = async () => {
    const { out } = await ask(server, home, ["tasks", "show", running, "--json"]);
    return JSON.parse(out).status === "running";
  };
  while (!(await isRunning())) {}
  expect((await ask(server, home, ["tasks", "cancel", running])).code).toBe(0);
  expect((await ask(server, home, ["tasks", "wait", running])).code).toBe(1);
  expect((await ask(server, home, ["workers", "drain", view.worker_id])).code).toBe(0);
  worker.kill("SIGTERM");
  expect(await worker.exited).toBe(0);
  expect((await ask(server, home, ["workers", "remove", "nobody"])).code).toBe(1);
});

test("who may not is refused, with the code for it", async () => {
  using home = makeHome();
  await using server = await serve(home, { command: "control-plane", words: BRIDGE });
  const env = { ...home.env, CPRG_SERVER: server.url };
  const stranger = await call(["tasks", "list", "--key", "nobody-0123456789abcdef"], { env });
  expect(stranger.code).toBe(3);
  const nowhere = await call(["tasks", "list"], {
    env: { ...home.env, CPRG_SERVER: "http://127.0.0.1:1", CPRG_KEY: "x" },
  });
  expect(nowhere.code).toBe(4);
  expect((await ask(server, home, ["tasks", "submit"])).code).toBe(2);
  expect((await ask(server, home, ["tasks", "show", "x"])).code).toBe(2);
  const off = await ask(server, home, ["tasks", "submit", "--prompt", "do it"]);
  expect(off.code).not.toBe(0);
  expect(off.err).toContain("CPRG_AGENT_MODEL");
  const token = await mint(server, home, ["--expires", "1h"]);
  const listed = await ask(server, home, ["token", "list", "--json"]);
  const [{ token_id: id }] = JSON.parse(listed.out).worker_tokens;
  expect(listed.out).not.toContain(token);
  expect((await ask(server, home, ["token", "revoke", id])).code).toBe(0);
  const revoked = startWorker(server.bridge, home, { token, name: "w1", words: ["--once"] });
  expect(await revoked.exited).toBe(3);
  expect(await server.stop()).toBe(0);
});

test("one shared bearer lets workers of this host in, and is said at the start", async () => {
  using home = makeHome();
  const token = "shared-bearer-0123456789";
  const env = { CPRG_BRIDGE_TOKEN: token };
  const options = { command: "control-plane", words: BRIDGE, env } as const;
  await using server = await serve(home, options);
  const worker = startWorker(server.bridge, home, { token, name: "w1", words: ["--once"] });
  const done = await ask(server, home, ["tasks", "submit", "-c", "true", "--wait"]);
  expect(done.code).toBe(0);
  expect(await worker.exited).toBe(0);
  await server.stop();
  const out = await server.out.rest();
  expect(out).toContain("one shared bearer lets workers in from this host alone");
  expect(`${out}${await server.err.rest()}`).not.toContain(token);
});

test("an agent works over HTTP where a model is set; its key stays with the server", async () => {
  await using model = startModelServer((_, index) => {
    if (index === 0) return calls("exec", { command: "cat /proc/$PPID/environ > e; env >> e" });
    if (index === 1) return calls("exec", { command: `grep -c "${MODEL_KEY.slice(0, 20)}" e` });
    return says("all done");
  });
  using home = makeHome();
  const env = {
    CPRG_AGENT_MODEL: "compatible:test-model",
    CPRG_AGENT_BASE_URL: model.url,
    CPRG_AGENT_KEY: MODEL_KEY,
  };
  await using server = await serve(home, { command: "control-plane", words: BRIDGE, env });
  const token = await mint(server, home);
  const worker = startWorker(server.bridge, home, { token, name: "w1", words: ["--once"] });
  const done = await ask(server, home, ["tasks", "submit", "--prompt", "look around", "--wait"]);
  expect(done.code).toBe(0);
  expect(done.out).toContain("all done");
  const { content } = model.requests[2]?.body.messages.at(-1) ?? {};
  expect(JSON.stringify(content)).toContain("stdout:\\n0\\n");
  expect(await worker.exited).toBe(0);
  await server.stop();
  expect(await server.err.rest()).not.toContain(MODEL_KEY);
});

requireHost({ programs: ["openssl"] }).test(
  "over TLS a worker that is known to the authority is let in, another is not",
  async () => {
    using home = makeHome();
    const shown = makeCertificate(home.path, "bridge");
    const own = makeCertificate(home.path, "worker");
    const tls = ["--bridge-tls-cert", shown.cert, "--bridge-tls-key", shown.key];
    const words = [...BRIDGE, ...tls, "--bridge-tls-client-ca", own.cert];
    await using server = await serve(home, { command: "control-plane", words });
    expect(await server.out.until(/bridge .*\(TLS\)/)).not.toContain("in the clear");
    const token = await mint(server, home);
    const trusts = ["--tls-ca", shown.cert];
    const stranger = startWorker(server.bridge, home, { token, name: "w1", words: trusts });
    const knows = [...trusts, "--tls-cert", own.cert, "--tls-key", own.key, "--once"];
    const known = startWorker(server.bridge, home, { token, name: "w2", words: knows });
    expect((await ask(server, home, ["tasks", "submit", "-c", "true", "--wait"])).code).toBe(0);
    expect(await known.exited).toBe(0);
    // The stranger has had as long as the other one needed, and was never there.
    const waits = await ask(server, home, ["tasks", "submit", "-c", "true"]);
    expect(waits.err).toContain("waits:");
    const listed = await ask(server, home, ["workers", "list", "--json"]);
    const there = (JSON.parse(listed.out).workers as { state: string }[]).map(({ state }) => state);
    // The one that ended may be waited for still.
    expect(there.filter((state) => state !== "lost")).toEqual([]);
    expect(there.length).toBeLessThan(2);
    stranger.kill("SIGKILL");
    await stranger.exited;
    const metrics = await (await server.request("/v1/metrics")).text();
    expect(metrics).toMatch(/^cprg_queued_tasks 1$/m);
    expect(metrics).toMatch(/^cprg_stale_epoch_refused_total 0$/m);
  },
);

requireHost({ sandbox: true }).test("one server runs jobs here and tasks on workers", async () => {
  using home = makeHome();
  await using server = await serve(home, { words: BRIDGE });
  const job = await server.submit({ language: "bash", code: "echo job" });
  const result = (await (await server.request(`/v1/jobs/${job}/result`)).json()) as {
    stdout: string;
  };
  expect(result.stdout).toBe("job\n");
  const token = await mint(server, home);
  const worker = startWorker(server.bridge, home, { token, name: "w1", words: ["--once"] });
  expect((await ask(server, home, ["tasks", "submit", "-c", "true", "--wait"])).code).toBe(0);
  expect(await worker.exited).toBe(0);
  expect(await server.stop()).toBe(0);
});

const ROUNDS = Number(process.env["CPRG_KILL_ROUNDS"] ?? 3);
const ROUND_MS_MAX = 80_000;
const TASKS = 16;

test(
  "SIGKILL of the control plane under load: what waited is done once, what ran has failed",
  async () => {
    using home = makeHome();
    const witness = join(home.path, "witness");
    mkdirSync(witness);
    let server = await serve(home, { command: "control-plane", words: BRIDGE });
    const { bridge } = server;
    const words = ["--bridge-addr", bridge];
    const token = await mint(server, home);
    const workers = ["w1", "w2"].map((name) => startWorker(bridge, home, { token, name }));
    try {
      for (let round = 0; round < ROUNDS; round += 1) {
        const ids = await submitMany(server, witness);
        // Some have run, some run, some wait.
        await until(() => (readdirSync(witness).length < round * TASKS + 3 ? null : true), {
          what: "some of the round's tasks run",
        });
        await server.stop("SIGKILL");
        server = await serve(home, { command: "control-plane", words });
        const ends = await Promise.all(ids.map(async (id) => await endOf(server, id)));
        for (const { status, reason, id } of ends) {
          expect([id, ["succeeded exit", "failed interrupted"]]).toEqual([
            id,
            expect.arrayContaining([`${status} ${reason}`]),
          ]);
          const runs = existsSync(join(witness, id)) ? readFileSync(join(witness, id), "utf8") : "";
          if (status === "succeeded") expect([id, runs]).toEqual([id, "ran\n"]);
          else expect(["", "ran\n"]).toContain(runs);
        }
        const interrupted = ends.filter(({ status }) => status === "failed").length;
        // Of each worker: a claim, and one before it whose end was not committed yet.
        expect(interrupted).toBeLessThanOrEqual(2 * workers.length);
        expect(ends.length - interrupted).toBeGreaterThan(TASKS / 2);
      }
    } finally {
      for (const worker of workers) worker.kill("SIGKILL");
      await Promise.all(workers.map((worker) => worker.exited));
      await server.stop();
    }
  },
  ROUNDS * ROUND_MS_MAX,
);

/** Each writes its own name where the test can see it, and takes a while. */
async function submitMany(server: Serving, witness: string): Promise<string[]> {
  const ids: string[] = [];
  for (let count = 0; count < TASKS; count += 1) {
    const name = `${witness}/$(basename "$TASK_FILE")`;
    const file = crypto.randomUUID();
    const commands = [`echo ran >> "${name}"; sleep 0.1`];
    const body = JSON.stringify({ input: { commands }, env: { TASK_FILE: file } });
    const answer = await server.request("/v1/tasks", { method: "POST", body });
    const { task_id: id } = (await answer.json()) as { task_id: string };
    files.set(id, file);
    ids.push(id);
  }
  return ids;
}

/** The file that each task writes. */
const files = new Map<string, string>();

async function endOf(server: Serving, id: string) {
  for (;;) {
    const answer = await server.request(`/v1/tasks/${id}?wait_seconds=60`);
    const task = (await answer.json()) as { status: string; reason: string; finished_at: unknown };
    if (task.finished_at === null) continue;
    return { status: task.status, reason: task.reason, id: files.get(id) ?? "" };
  }
}
