// A server over a real engine whose sandboxes clients hold open, and how tests ask of it.

import { afterAll, beforeAll, setDefaultTimeout } from "bun:test";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { EventRow } from "../../src/core/event.ts";
import { silentLog } from "../../src/core/log.ts";
import { type RunningServer, startServer } from "../../src/http/serve.ts";
import { JobService } from "../../src/jobs/service.ts";
import { Feed } from "../../src/record/feed.ts";
import type { LocalEngine } from "../../src/sandbox/engine.ts";
import { fullPrivileges } from "../../src/sandbox/reduce-privileges.ts";
import { SandboxService, type SandboxServiceOptions } from "../../src/sandboxes/service.ts";
import type { FileStore } from "../../src/store/open.ts";
import { openStore } from "../../src/store/open.ts";
import { type Answer, type Ask, KEY_A, KEY_B, requestInit, tenantsOf } from "../http/fixture.ts";
import { signingKey } from "../jobs/fixture.ts";
import { TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, type Left, takeSnapshot } from "./snapshot.ts";
import { ID_RANGE, makeDirs, openTestEngine, warmUp } from "./test-engine.ts";

export interface SandboxServer {
  readonly engine: LocalEngine;
  readonly url: URL;
  readonly service: SandboxService;
  readonly store: FileStore;
  ask(path: string, how?: Ask): Promise<Answer>;
  /** Opens a sandbox; its id. */
  open(body?: object): Promise<string>;
  /** Runs a shell script to its end; its result. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  sh(id: string, script: string, more?: object): Promise<any>;
  /** Events of an exec, up to now. */
  events(execId: string): Promise<readonly EventRow[]>;
}

/** A stream that is open. */
export interface OpenStream extends Disposable {
  /** All that the program has printed so far. */
  output(): string;
  /** Resolves with the close code. */
  readonly closed: Promise<number>;
}

/** Follows an exec over a WebSocket. */
export function openSocket(base: URL, path: string): OpenStream {
  const url = new URL(path, base).href.replace(/^http/, "ws");
  const headers = { Authorization: `Bearer ${KEY_A}` };
  const socket = new WebSocket(url, { headers } as never);
  let output = "";
  socket.addEventListener("message", ({ data }) => {
    const row = JSON.parse(String(data)) as EventRow;
    if (row.kind === "stdout") output += row.data;
  });
  const closed = new Promise<number>((resolve) => {
    socket.addEventListener("close", ({ code }) => resolve(code));
  });
  return { output: () => output, closed, [Symbol.dispose]: () => socket.close() };
}

/** One server for the tests of a file. */
export function useSandboxServer(options: Partial<SandboxServiceOptions> = {}): SandboxServer {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  let engine: LocalEngine | undefined;
  // Clients of the same process keep connections, so descriptors are not compared.
  const look = (): Left => ({
    ...takeSnapshot(dirs, ID_RANGE, engine === undefined ? [] : [engine.instance]),
    descriptors: {},
  });
  let before: Left | undefined;
  let server: RunningServer | undefined;
  let service: SandboxService | undefined;
  let store: FileStore | undefined;
  let jobs: JobService | undefined;
  beforeAll(async () => {
    await warmUp(dirs);
    before = look();
    engine = await openTestEngine(dirs);
    store = await openStore({ path: join(dirs.top, "cprg.db") });
    const feed = new Feed(store.events);
    const { instance, languages } = engine;
    const parts = { store, feed, provider: engine, instance, signingKey, log: silentLog };
    service = new SandboxService({ tenantSandboxes: 100, ...parts, ...options });
    jobs = new JobService({ ...parts, languages });
    await service.start();
    server = await startServer({
      jobs,
      sandboxes: service,
      ...(await tenantsOf(store)),
      engine,
      privileges: fullPrivileges(),
      log: silentLog,
      version: "1",
      hostname: "127.0.0.1",
      port: 0,
    });
  });
  afterAll(async () => {
    await service?.stop(0);
    await jobs?.stop(0);
    await server?.stop();
    await store?.close();
    await engine?.close();
    for (const name of readdirSync(dirs.top)) {
      if (name.startsWith("cprg.db")) rmSync(join(dirs.top, name));
    }
    await expectNothingLeft(before ?? look(), look);
    rmSync(dirs.top, { recursive: true, force: true });
  });
  const ask = async (path: string, how: Ask = {}): Promise<Answer> => {
    const response = await fetch(new URL(path, got(server).url), requestInit(how));
    const text = await response.text();
    const isJson = /[/+]json$/.test(response.headers.get("content-type") ?? "");
    const json = isJson && text !== "" ? JSON.parse(text) : null;
    return { status: response.status, headers: response.headers, text, json };
  };
  const open = async (body: object = {}): Promise<string> => {
    const { status, json, text } = await ask("/v1/sandboxes", { body });
    if (status !== 201) throw new Error(`not opened: ${status} ${text}`);
    return json.sandbox_id;
  };
  return {
    ask,
    open,
    get engine() {
      return got(engine);
    },
    get url() {
      return got(server).url;
    },
    get service() {
      return got(service);
    },
    get store() {
      return got(store);
    },
    sh: async (id, script, more = {}) => {
      const body = { argv: ["/bin/bash", "-c", script], ...more };
      return (await ask(`/v1/sandboxes/${id}/execs`, { body })).json;
    },
    events: async (execId) => (await ask(`/v1/execs/${execId}/replay`)).json.events,
  };
}

function got<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("not started yet");
  return value;
}

export { KEY_B };
