// `cprg serve` of the compiled binary: its start, its end, and what it refuses.

import { expect } from "bun:test";
import {
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { listeningAddresses, pidsWith } from "../helpers/processes.ts";
import { call, makeHome, readText, start } from "./cprg.ts";
import { serve } from "./server.ts";

const { test } = requireHost({ root: true, cgroup: true });

const sleeper = "import time; print('ready', flush=True); time.sleep(60)";
const key = "0123456789abcdef-e2e";

async function json(response: Response): Promise<Record<string, unknown>> {
  return (await response.json()) as Record<string, unknown>;
}

test("the first start makes a key, prints it once, and listens on loopback alone", async () => {
  using home = makeHome();
  const path = join(home.dataDir, "api-key");
  {
    await using server = await serve(home);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(await server.out.until(/api key/)).toContain(readFileSync(path, "utf8").trim());
    expect(listeningAddresses(server.process.pid)).toEqual(["127.0.0.1"]);
    expect((await server.request("/v1/status")).status).toBe(200);
    expect((await fetch(`${server.url}/v1/status`)).status).toBe(401);
    expect(await server.stop()).toBe(0);
  }
  const before = readFileSync(path, "utf8");
  await using again = await serve(home);
  expect(await again.stop()).toBe(0);
  expect(await again.out.rest()).not.toContain("api key");
  expect(readFileSync(path, "utf8")).toBe(before);
});

test("SIGTERM ends running jobs as shut down, tells readers, and nothing is left", async () => {
  using home = makeHome();
  const mark = `e2e-${crypto.randomUUID()}`;
  let id = "";
  {
    await using server = await serve(home);
    id = await server.submit({ language: "python", code: sleeper, args: [mark] });
    await readOutput(server, id);
    expect(pidsWith(mark).length).toBeGreaterThan(0);
    const url = `${server.url}/v1/jobs/${id}/stream`.replace(/^http/, "ws");
    const socket = new WebSocket(url, { headers: { Authorization: `Bearer ${server.key}` } });
    let last = "";
    socket.addEventListener("message", ({ data }) => (last = String(data)));
    await new Promise((resolve) => socket.addEventListener("message", resolve, { once: true }));
    const closed = new Promise<number>((resolve) => {
      socket.addEventListener("close", ({ code }) => resolve(code));
    });
    expect(await server.stop()).toBe(0);
    expect(await closed).toBe(1000);
    expect(JSON.parse(last)).toMatchObject({ kind: "finished", data: { reason: "shutdown" } });
    expect(pidsWith(mark)).toEqual([]);
  }
  await using again = await serve(home);
  expect(await json(await again.request(`/v1/jobs/${id}`))).toMatchObject({
    status: "error",
    reason: "shutdown",
  });
});

test("run --server learns how its program ended when its server is stopped", async () => {
  using home = makeHome();
  await using server = await serve(home);
  const env = { ...home.env, CPRG_SERVER: server.url };
  const child = start(["run", "-c", sleeper], { env });
  await readText(child.stdout).until(/ready/);
  expect(await server.stop()).toBe(0);
  expect(await child.exited).toBe(1);
  expect(await child.stderr.text()).toContain("shutdown");
});

test("a second SIGTERM does not wait for a job that ignores the first", async () => {
  using home = makeHome();
  const mark = `e2e-${crypto.randomUUID()}`;
  await using server = await serve(home, { words: ["--stop-grace-seconds", "3600"] });
  const code = `import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("ignored", flush=True))
print("ready", flush=True)
while True: time.sleep(1)`;
  const id = await server.submit({ language: "python", code, args: [mark] });
  const seen = readOutput(server, id, "ignored");
  await readOutput(server, id);
  server.process.kill("SIGTERM");
  await seen;
  expect(await server.stop()).toBe(0);
  expect(pidsWith(mark)).toEqual([]);
});

test("after SIGKILL running jobs are interrupted, queued ones run once, nothing is left", async () => {
  using home = makeHome();
  const mark = `e2e-${crypto.randomUUID()}`;
  const words = ["--job-slots", "2", "--tenant-concurrency", "2"];
  const running: string[] = [];
  const queued: string[] = [];
  {
    await using server = await serve(home, { words });
    for (const _ of [1, 2]) {
      running.push(await server.submit({ language: "python", code: sleeper, args: [mark] }));
    }
    for (const id of running) await readOutput(server, id);
    for (const _ of [1, 2, 3]) {
      queued.push(await server.submit({ language: "python", code: "print('ran')" }));
    }
    await server.stop("SIGKILL");
  }
  await using again = await serve(home, { words });
  expect(pidsWith(mark)).toEqual([]);
  for (const id of running) {
    const result = await json(await again.request(`/v1/jobs/${id}/result?wait_seconds=0`));
    expect(result).toMatchObject({ status: "error", reason: "interrupted" });
    // Python writes the newline by itself; the server may have ended in between.
    expect(result["stdout"]).toMatch(/^ready\n?$/);
  }
  for (const id of queued) {
    const result = await json(await again.request(`/v1/jobs/${id}/result?wait_seconds=60`));
    expect(result).toMatchObject({ status: "succeeded", stdout: "ran\n" });
    const { events } = (await json(await again.request(`/v1/jobs/${id}/replay`))) as {
      events: { kind: string }[];
    };
    const kinds = events.map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === "started")).toHaveLength(1);
    expect(kinds.filter((kind) => kind === "finished")).toHaveLength(1);
  }
});

test("with --no-recover-queued queued jobs of an earlier run end as interrupted", async () => {
  using home = makeHome();
  let id = "";
  {
    await using server = await serve(home, { words: ["--job-slots", "1"] });
    await readOutput(server, await server.submit({ language: "python", code: sleeper }));
    id = await server.submit({ language: "python", code: "print('never')" });
    await server.stop("SIGKILL");
  }
  await using again = await serve(home, { words: ["--no-recover-queued"] });
  expect(await json(await again.request(`/v1/jobs/${id}`))).toMatchObject({
    reason: "interrupted",
  });
});

test("serve refuses to start where anybody could run programs, or a name is wrong", async () => {
  using home = makeHome();
  mkdirSync(home.dataDir, { recursive: true });
  const config = join(home.path, "cprg.toml");
  writeFileSync(config, "job_slot = 3\n");
  const cases: [string[], Record<string, string>, string][] = [
    [["--addr", "0.0.0.0:0"], {}, "no key is set"],
    [["--addr", "[::]:0"], {}, "no key is set"],
    [[], { CPRG_ENV: "production" }, "no key is set"],
    [["--sandbox", "off"], { CPRG_ENV: "prod", CPRG_API_KEYS: key }, "the sandbox is off"],
    [["--config", config], {}, 'Cannot use key "job_slot"'],
    [["--job-slot", "3"], {}, "Did you mean --job-slots?"],
    [[], { CPRG_API_KEYS: "short" }, "Cannot use entry 1 of CPRG_API_KEYS"],
    [["--addr", "127.0.0.1:0"], { CPRG_DATA_DIR: "/proc/x" }, "/proc/x"],
    [["--addr", "0.0.0.0:0", "--sandbox", "off"], { CPRG_API_KEYS: key }, "the sandbox is off"],
    [["--addr", "[::]:0"], { CPRG_API_KEYS: key, CPRG_SANDBOX: "off" }, "the sandbox is off"],
  ];
  for (const [words, env, text] of cases) {
    for (const given of text.startsWith("/") ? [words] : [words, [...words, "--check"]]) {
      const ended = await call(["serve", ...given], { env: { ...home.env, ...env } });
      expect({ given, code: ended.code, out: ended.out }).toEqual({ given, code: 2, out: "" });
      expect(ended.err).toContain(text);
    }
  }
});

test("serve refuses a data directory that cannot be made, or that others may write in", async () => {
  using home = makeHome();
  const file = join(home.path, "file");
  const shared = join(home.path, "shared");
  writeFileSync(file, "");
  mkdirSync(shared);
  chmodSync(shared, 0o1777);
  const cases = [
    ["/proc/x", "Cannot make the data directory /proc/x: ENOENT", "CPRG_DATA_DIR"],
    [file, `Cannot make the data directory ${file}: EEXIST`, "CPRG_DATA_DIR"],
    [shared, `Cannot use the data directory ${shared}: other users may write to it`, "chmod 700"],
  ] as const;
  for (const [dataDir, why, fix] of cases) {
    const ended = await call(["serve", "--addr", "127.0.0.1:0", "--data-dir", dataDir], home);
    expect(ended).toMatchObject({ code: 2, out: "" });
    expect(ended.err).toContain(why);
    expect(ended.err).toContain(fix);
  }
  expect(readdirSync(shared)).toEqual([]);
  const made = await call(["key", "create", "--data-dir", shared], home);
  expect(made).toMatchObject({ code: 2, out: "" });
});

test("serve refuses a key file that others may read", async () => {
  using home = makeHome();
  mkdirSync(home.dataDir, { recursive: true });
  writeFileSync(join(home.dataDir, "api-key"), `${"ab".repeat(32)}\n`, { mode: 0o644 });
  const ended = await call(["serve", "--addr", "127.0.0.1:0"], home);
  expect(ended).toMatchObject({ code: 2, out: "" });
  expect(ended.err).toContain("others may read it");
});

test("serve refuses a port and a database that are in use", async () => {
  using home = makeHome();
  using other = makeHome();
  await using server = await serve(home);
  const address = server.url.replace("http://", "");
  const samePort = await call(["serve", "--addr", address], other);
  expect(samePort).toMatchObject({ code: 2 });
  expect(samePort.err).toContain("another program listens there");
  const sameData = await call(["serve", "--addr", "127.0.0.1:0"], home);
  expect(sameData).toMatchObject({ code: 2 });
  expect((await server.request("/v1/status")).status).toBe(200);
});

test("a signal that was ignored when the server started stays ignored", async () => {
  using home = makeHome();
  await using server = await serve(home, { ignore: "HUP INT" });
  for (const signal of ["SIGHUP", "SIGINT"] as const) server.process.kill(signal);
  // Two jobs take long enough for a server that heeds the signals to refuse the second.
  for (const _ of [1, 2]) {
    const id = await server.submit({ language: "python", code: "print(1)" });
    const result = await json(await server.request(`/v1/jobs/${id}/result`));
    expect(result).toMatchObject({ status: "succeeded" });
  }
  expect(await server.stop()).toBe(0);
});

test("serve --check prints the effective settings and where they come from, without secrets", async () => {
  using home = makeHome();
  const config = join(home.path, "cprg.toml");
  writeFileSync(config, "addr = '127.0.0.1:1'\njob_slots = 1\ntenant_concurrency = 1\n");
  const env = { ...home.env, CPRG_API_KEYS: key, CPRG_JOB_SLOTS: "2", CPRG_ADDR: "127.0.0.1:2" };
  const words = ["serve", "--check", "--json", "--config", config, "--addr", "127.0.0.1:3"];
  const { code, out, err } = await call(words, { env });
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(JSON.parse(out)).toMatchObject({
    addr: { value: { host: "127.0.0.1", port: 3 }, source: "flag" },
    job_slots: { value: 2, source: "environment" },
    tenant_concurrency: { value: 1, source: "file" },
    stop_grace_seconds: { value: 10, source: "default" },
  });
  expect(out).not.toContain(key);
  expect((await call(["serve", "--check"], { env })).out).toMatch(/^job_slots +environment +2$/m);
});

test("serve warns of a CPRG_ variable that nothing reads, and starts", async () => {
  using home = makeHome();
  await using server = await serve(home, { env: { CPRG_ADR: "x" } });
  expect(await server.stop()).toBe(0);
  expect(await server.err.rest()).toContain(
    "CPRG_ADR is no variable of cprg; did you mean CPRG_ADDR?",
  );
});

/** Waits, over the command line of the same binary's HTTP API, for text in a job's output. */
async function readOutput(
  server: { readonly url: string; readonly key: string },
  id: string,
  text = "ready",
): Promise<void> {
  const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/jobs/${id}/stream`, {
    headers: { Authorization: `Bearer ${server.key}` },
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(String(data)) as { kind: string; data: unknown };
    if (event.kind === "stdout" && String(event.data).includes(text)) resolve();
    if (event.kind === "finished") reject(new Error(`job ended: ${JSON.stringify(event)}`));
  };
  socket.onclose = () => reject(new Error("the stream was closed"));
  try {
    await promise;
  } finally {
    socket.close();
  }
}

test("a log that nobody reads does not keep the server from stopping", async () => {
  using home = makeHome();
  const fifo = join(home.path, "stderr");
  expect(Bun.spawnSync(["mkfifo", fifo]).exitCode).toBe(0);
  const held = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  fillPipe(held);
  await using server = await serve(home, { stderrPath: fifo });
  expect((await server.request("/v1/status")).status).toBe(200);
  expect(await server.stop()).toBe(0);
  closeSync(held);
});

/** Writes until the kernel takes no more. */
function fillPipe(fd: number): void {
  const bytes = new Uint8Array(4096);
  try {
    for (;;) writeSync(fd, bytes);
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe("EAGAIN");
  }
}
