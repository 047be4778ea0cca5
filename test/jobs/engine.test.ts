// Real programs in real sandboxes, through the HTTP API and a store on disk.

import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EventRow } from "../../src/core/event.ts";
import { newId } from "../../src/core/ids.ts";
import { silentLog } from "../../src/core/log.ts";
import { type RunningServer, startServer } from "../../src/http/serve.ts";
import { JobService } from "../../src/jobs/service.ts";
import { Feed } from "../../src/record/feed.ts";
import { type LocalEngine, openLocalEngine } from "../../src/sandbox/engine.ts";
import { fullPrivileges } from "../../src/sandbox/reduce-privileges.ts";
import { SandboxService } from "../../src/sandboxes/service.ts";
import type { Store } from "../../src/store/contract.ts";
import { openStore } from "../../src/store/open.ts";
import { requireHost } from "../helpers/host.ts";
import { type Ask, KEY_A, python, requestInit, tenantsOf } from "../http/fixture.ts";
import { signingKey } from "./fixture.ts";

const host = requireHost({ root: true, cgroup: true, programs: ["bash"] });

let directory: string;
let engine: LocalEngine;
let store: Store;
let jobs: JobService;
let server: RunningServer;

host.describe("a job on the local engine", () => {
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "cprg-jobs-"));
    const log = silentLog;
    engine = await openLocalEngine({ runDir: directory, dataDir: directory, mode: "auto", log });
    store = await openStore({ path: join(directory, "cprg.db") });
    const feed = new Feed(store.events);
    const { languages, instance } = engine;
    jobs = new JobService({ store, feed, provider: engine, languages, instance, signingKey, log });
    await jobs.start({ keepQueued: true });
    const parts = { store, feed, provider: engine, instance, signingKey, log };
    server = await startServer({
      jobs,
      sandboxes: new SandboxService(parts),
      ...(await tenantsOf(store)),
      engine,
      privileges: fullPrivileges(),
      log,
      version: "1",
      hostname: "127.0.0.1",
      port: 0,
    });
  });

  afterAll(async () => {
    await jobs.stop(0);
    await server.stop();
    await engine.close();
    await store.close();
    rmSync(directory, { recursive: true });
  });

  host.test("runs with its files, input, arguments and variables", async () => {
    const code = [
      "import os, sys",
      "print(6 * 7, sys.stdin.read(), open('dir/é.txt').read(), sys.argv[1:], os.environ['NAME'])",
      "print('err', file=sys.stderr)",
      "sys.exit(3)",
    ].join("\n");
    const result = await run({
      ...python(code),
      stdin: "input",
      args: ["a b", "--"],
      env: { NAME: "värde" },
      files: [{ path: "dir/é.txt", text: "file" }],
    });
    expect(result).toMatchObject({
      status: "failed",
      reason: "exit",
      exit_code: 3,
      stdout: "42 input file ['a b', '--'] värde\n",
      stderr: "err\n",
      truncated: false,
    });
    const events = await eventsOf(result.job_id);
    expect(events.map(({ kind }) => kind).filter((kind) => kind !== "usage")).toEqual([
      "queued",
      "started",
      "stdout",
      "stderr",
      "finished",
    ]);
    expect(events.find(({ kind }) => kind === "started")?.data).toMatchObject({
      layers: { namespaces: true, root: true },
      interpreter: expect.stringMatching(/^python 3\./),
    });
  });

  host.test("shows a prompt while the program still runs", async () => {
    const id = await submit(bash("printf 'name? '; sleep 30"));
    const row = await firstRow(id, ({ kind }) => kind === "stdout");
    expect(row.data).toBe("name? ");
    expect((await ask(`/v1/jobs/${id}`)).json.status).toBe("running");
    expect((await ask(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(200);
  });

  host.test("at its time limit is gone from the host when `finished` is seen", async () => {
    const marker = newId();
    const daemon = `(setsid bash -c 'trap "" TERM; while :; do sleep 1; done' ${marker} &)`;
    const code = `bash -c 'while :; do :; done' ${marker} & ${daemon}; while :; do :; done`;
    const id = await submit({ ...bash(code, [marker]), limits: { wall_seconds: 0.5 } });
    await firstRow(id, ({ kind }) => kind === "started");
    while (hostPids(marker).length < 3) await new Promise((resolve) => setImmediate(resolve));
    const finished = await firstRow(id, ({ kind }) => kind === "finished");
    expect(hostPids(marker)).toEqual([]);
    expect(engine.status().sandboxes).toBe(0);
    expect(finished.data).toMatchObject({ status: "timed_out", reason: "wall_limit" });
    const events = await eventsOf(id);
    expect(events.filter(({ kind }) => kind === "limit").map(({ data }) => data)).toMatchObject([
      { limit: "wall_seconds", value: 0.5, sampled: false },
    ]);
  });

  host.test("that ignores SIGTERM is cancelled after its grace", async () => {
    const marker = newId();
    const code = "trap '' TERM; echo ready; while :; do sleep 1; done";
    const id = await submit({ ...bash(code, [marker]), kill_grace_seconds: 0.2 });
    await firstRow(id, ({ kind }) => kind === "stdout");
    expect(hostPids(marker).length).toBeGreaterThan(0);
    const gone = await ask(`/v1/jobs/${id}`, { method: "DELETE" });
    expect(gone).toMatchObject({ status: 200, json: { status: "cancelled", signal: "SIGKILL" } });
    expect(hostPids(marker)).toEqual([]);
    expect((await ask(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(409);
  });

  host.test("may print more than is kept, without end of line, and is told so once", async () => {
    const code =
      "head -c 20000000 /dev/zero | tr '\\0' x; head -c 20000000 /dev/zero | tr '\\0' y >&2";
    const result = await run({ ...bash(code), limits: { output_kb: 200 } });
    expect(result).toMatchObject({ status: "succeeded", truncated: true });
    expect(result.stdout).toBe("x".repeat(200 * 1024));
    expect(result.stderr).toBe("y".repeat(200 * 1024));
    const events = await eventsOf(result.job_id);
    const streams = events.flatMap(({ kind, data }) => (kind === "truncated" ? [data] : []));
    expect(streams).toMatchObject([{ stream: "stdout" }, { stream: "stderr" }]);
  });

  host.test("keeps bytes that are no text", async () => {
    const result = await run(bash("printf '\\xff\\xfe\\x00a'"));
    expect(Buffer.from(result.stdout_base64, "base64").toString("latin1")).toBe("\xff\xfe\0a");
  });

  host.test("whose program does not exist is an error, not an exit code", async () => {
    const result = await run({ argv: ["/no/such/program"] });
    expect(result).toMatchObject({ status: "error", reason: "setup_failed", exit_code: null });
    expect(result.error.message).toContain("/no/such/program");
    expect((await eventsOf(result.job_id)).map(({ kind }) => kind)).toEqual(["queued", "finished"]);
  });

  host.test("whose files do not fit says so", async () => {
    const files = Array.from({ length: 100 }, (_, index) => ({ path: `d${index}/f`, text: "x" }));
    const result = await run({ ...bash("true"), files, limits: { inodes: 20 } });
    expect(result).toMatchObject({ status: "error", reason: "setup_failed" });
    expect(result.error.message).toStartWith("Cannot ");
  });

  host.test("leaves nothing behind, many at once", async () => {
    const ids = await Promise.all(
      Array.from({ length: 24 }, (_, index) => submit(bash(`echo ${index}`))),
    );
    const results = await Promise.all(ids.map((id) => ask(`/v1/jobs/${id}/result`)));
    expect(results.map(({ json }) => json.stdout)).toEqual(ids.map((_, index) => `${index}\n`));
    expect(engine.status()).toMatchObject({
      sandboxes: 0,
      waiting: 0,
      reserved: { memMb: 0, pids: 0 },
    });
  });
});

async function ask(path: string, how: Ask = {}) {
  const response = await fetch(new URL(path, server.url), requestInit(how));
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  return { status: response.status, json: (await response.json()) as any };
}

async function submit(body: unknown): Promise<string> {
  const answer = await ask("/v1/jobs", { body });
  if (answer.status !== 201) throw new Error(JSON.stringify(answer.json));
  return answer.json.job_id;
}

async function run(body: unknown) {
  return (await ask(`/v1/jobs/${await submit(body)}/result`)).json;
}

function bash(code: string, args: readonly string[] = []) {
  return { language: "bash", code, args };
}

async function eventsOf(id: string): Promise<EventRow[]> {
  return (await ask(`/v1/jobs/${id}/replay`)).json.events;
}

/** The first event that matches, as a WebSocket gets it. */
async function firstRow(id: string, matches: (row: EventRow) => boolean): Promise<EventRow> {
  const socket = new WebSocket(`${server.url.href}v1/jobs/${id}/stream?key=${KEY_A}`);
  try {
    return await new Promise((resolve, reject) => {
      socket.addEventListener("message", ({ data }) => {
        const row = JSON.parse(String(data)) as EventRow;
        if (matches(row)) resolve(row);
      });
      socket.addEventListener("close", () => reject(new Error("the stream ended without it")));
    });
  } finally {
    socket.close();
  }
}

/** Processes of this host whose command line holds a text. */
function hostPids(text: string): string[] {
  return readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, "latin1").includes(text);
    } catch {
      // It ended while the list was read.
      return false;
    }
  });
}
