// The fuzz of test/http/fuzz.test.ts on the executable: a real listener, store, engine and bridge.
//
// What would take long on a real engine is made small, and nothing is left out: of requests that fit the
// description, seven in eight run /bin/true instead of Python, and ask for no limits, so that a sandbox of
// the pool can be theirs. Variables, labels, input, times and all else stay as they were made.

import { expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startWorkerHere, type WorkerHere } from "../control-plane/ground.ts";
import { requireHost } from "../helpers/host.ts";
import { type Answer, type Ask, readAnswer, requestInit } from "../http/fixture.ts";
import { driveRoutes, driveSettings, REQUESTS_LEAST, reportLine } from "../http/fuzz/drive.ts";
import type { Fuzzed } from "../http/fuzz/places.ts";
import type { FuzzRequest, Operation } from "../http/fuzz/requests.ts";
import { makeHome } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";
import { until } from "./until.ts";

const host = requireHost({ root: true, cgroup: true });

const KEY = "fuzz-key-of-a-tenant-0123456789";
const ADMIN_KEY = "fuzz-key-of-an-admin-0123456789";
/** Routes at once: a request waits more than it works. */
const LANES = 6;

const { requests, seed, routeMs } = driveSettings({ requests: REQUESTS_LEAST, routeSeconds: 20 });

/** Stays whatever it is sent but SIGKILL and SIGSTOP. */
const STUBBORN = 'trap "" HUP INT QUIT USR1 USR2 TERM; while :; do sleep 60; done';

/** Makes what a program does small; everything around it stays. */
function smallProgram(): NonNullable<Parameters<typeof driveRoutes>[0]["adapt"]> {
  let programs = 0;
  const small = (body: object): object => {
    programs += 1;
    if (programs % 8 === 0) return body;
    const { language, code: _, limits: __, ...rest } = body as Record<string, unknown>;
    return { ...rest, ...(language === undefined ? {} : { argv: ["/bin/true"] }) };
  };
  return ({ method, path }: Operation, made: FuzzRequest): FuzzRequest => {
    const request = PLACED.includes(path) ? unplaced(made) : made;
    const { body, isGood } = request;
    if (method !== "POST" || typeof body !== "object" || body === null) return request;
    // Also of a request that is wrong elsewhere, and may be taken all the same: cat and sh would stay.
    if (path === "/v1/sandboxes/{id}/execs" && "argv" in body && isExample(body.argv)) {
      return { ...request, body: { ...body, argv: ["/bin/true"] } };
    }
    if (!isGood) return request;
    if (path === "/v1/jobs" || path === "/v1/sandboxes") return { ...request, body: small(body) };
    if (path === "/v1/jobs/batch") {
      const { jobs } = body as { jobs: object[] };
      return { ...request, body: { ...body, jobs: jobs.map(small) } };
    }
    return request;
  };
}

/** Routes of what may be placed on a worker. */
const PLACED: readonly string[] = ["/v1/jobs", "/v1/sandboxes"];

/** Without a place that could be had: workers come and go here, and that there is none is a true 503. */
function unplaced(request: FuzzRequest): FuzzRequest {
  const { placement, ...body } = (request.body ?? {}) as { placement?: unknown };
  const isOne = typeof placement === "object" && placement !== null;
  return isOne ? { ...request, body } : request;
}

/** Whether it is a program of the description. */
function isExample(argv: unknown): boolean {
  return Array.isArray(argv) && ["python3", "cat", "sh"].includes(argv[0]);
}

function asker(server: Serving) {
  return async (path: string, how: Ask = {}): Promise<Answer> => {
    const init = requestInit({ key: KEY, ...how });
    // The client says how long a body is; a lie of it would be one of the client, not of the request.
    const headers = new Headers(init.headers);
    headers.delete("Content-Length");
    const { body, ...rest } = init;
    const isBodiless = rest.method === "HEAD" || rest.method === "GET";
    return await readAnswer(
      await fetch(`${server.url}${path}`, {
        ...rest,
        headers,
        redirect: "manual",
        ...(isBodiless || body === undefined ? {} : { body }),
      }),
    );
  };
}

/** Workers of this process that dial the server's bridge, and end with the test. */
function workersOf(server: Serving, ask: Fuzzed["ask"]) {
  const directory = mkdtempSync(join(tmpdir(), "cprg-fuzz-"));
  const workers: WorkerHere[] = [];
  const port = Number(server.bridge.split(":").at(-1));
  return {
    open: async (): Promise<string> => {
      const body = { expires_in_seconds: 3600 };
      const { json } = await ask("/v1/worker-tokens", { body, key: ADMIN_KEY });
      const here = await startWorkerHere({ port, token: json.token, isIdle: true }, directory);
      workers.push(here);
      await until(
        async () => {
          const { json: list } = await ask("/v1/workers", { key: ADMIN_KEY });
          const ids: string[] = list.workers.map(
            (worker: { worker_id: string }) => worker.worker_id,
          );
          return ids.includes(here.id) || null;
        },
        { what: "the worker is there" },
      );
      return here.id;
    },
    [Symbol.asyncDispose]: async () => {
      for (const { worker, ended } of workers) {
        await worker.kill();
        await ended;
      }
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

host.test(
  "no route of the executable fails, and every answer is described",
  async () => {
    using home = makeHome();
    await using server = await serve(home, {
      words: ["--bridge-addr", "127.0.0.1:0"],
      env: {
        CPRG_API_KEYS: `a:${KEY}`,
        CPRG_ADMIN_KEYS: `a:${ADMIN_KEY}`,
        CPRG_QUEUE_MAX: "100000",
        CPRG_QUEUE_TENANT_MAX: "100000",
        CPRG_TENANT_CONCURRENCY: "4",
        CPRG_TENANT_SANDBOXES: "64",
      },
    });
    const ask = asker(server);
    await using workers = workersOf(server, ask);
    const { json: document } = await ask("/openapi.json");
    const fuzzed: Fuzzed = {
      ask,
      adminKey: ADMIN_KEY,
      quickJob: { argv: ["/bin/sh", "-c", "mkdir out; echo 1 >out/a.txt"] },
      endlessJob: { argv: ["/bin/sleep", "300"] },
      quickExec: { argv: ["/bin/true"] },
      endlessExec: {
        argv: ["/bin/sh", "-c", STUBBORN],
        tty: { columns: 80, rows: 24 },
        kill_grace_seconds: 0,
      },
      isExecMortal: true,
      openWorker: workers.open,
    };
    const reports = await driveRoutes({
      ...{ fuzzed, document, seed, requests, routeMs },
      lanes: LANES,
      adapt: smallProgram(),
    });
    process.stderr.write(`${reportLine(reports, requests)}\n`);
    expect(reports.filter(({ successes, least }) => successes < least)).toEqual([]);
    expect(reports.filter(({ sent }) => sent < Math.min(requests, REQUESTS_LEAST))).toEqual([]);
    expect((await ask("/healthz")).status).toBe(200);
    expect(await server.stop()).toBe(0);
    const log = await server.err.rest();
    expect(log.split("\n").filter((line) => line.includes('"level":"error"'))).toEqual([]);
  },
  1_200 * REQUESTS_LEAST + 60 * routeMs,
);
