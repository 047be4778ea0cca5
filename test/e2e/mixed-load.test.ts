// Many jobs of every kind at once, and a server that is killed under load: the host is afterwards as
// it was before.

import { afterAll, expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { EventRow } from "../../src/core/event.ts";
import { requireHost } from "../helpers/host.ts";
import { pidsWith } from "../helpers/processes.ts";
import { type Home, makeHome } from "./cprg.ts";
import { hostSnapshot } from "./host-snapshot.ts";
import { followJob, isKind, outputHas } from "./job-events.ts";
import { directoriesBeneath, readText, sandboxProcesses } from "./sandbox-processes.ts";
import { type Serving, serve } from "./server.ts";
import { until } from "./until.ts";

const { test } = requireHost({ root: true, cgroup: true });

const JOBS = 200;
const ATONCE = 8;
/** For a host that is busy with other things; the tests wait for conditions, never for it. */
const TIMEOUT_MS = 300_000;
const words = ["--job-slots", "8", "--tenant-concurrency", "8", "--log", "warn"];
/** What `cprg serve` keeps built by itself (cprg serve --help). */
const DEFAULT_POOL = 4;

const homes: Home[] = [];
afterAll(() => {
  for (const home of homes) home[Symbol.dispose]();
});

async function start(): Promise<{ home: Home; open(): Promise<Serving> }> {
  const home = makeHome();
  homes.push(home);
  const tmp = join(home.path, "tmp");
  mkdirSync(tmp);
  return {
    home,
    open: () => serve(home, { words, env: { TMPDIR: tmp, BUN_TMPDIR: tmp } }),
  };
}

async function instanceOf(server: Serving): Promise<string> {
  return ((await (await server.request("/v1/status")).json()) as { instance: string }).instance;
}

/** One kind of job and how it ends. */
interface Kind {
  readonly body: Readonly<Record<string, unknown>>;
  readonly wanted: Readonly<Record<string, unknown>>;
  /** Cancelled once it is ready. */
  readonly isCancelled?: boolean;
}

const daemon = `import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(300)
    os._exit(0)
os.wait()
print("left")`;

const kinds: Readonly<Record<string, Kind>> = {
  python: {
    body: { language: "python", code: "print(input())", stdin: "in" },
    wanted: { status: "succeeded", stdout: "in\n" },
  },
  bash: {
    body: { language: "bash", code: "cat file; exit 4", files: [{ path: "file", text: "f" }] },
    wanted: { status: "failed", exit_code: 4, stdout: "f" },
  },
  typescript: {
    body: { language: "typescript", code: "const n: number = 6; console.log(n * 7)" },
    wanted: { status: "succeeded", stdout: "42\n" },
  },
  failing: {
    body: { language: "python", code: "import os; os.abort()" },
    wanted: { status: "failed", signal: "SIGABRT" },
  },
  missing: {
    body: { argv: ["/no/such/program"] },
    wanted: { status: "error", reason: "setup_failed" },
  },
  timeout: {
    body: { argv: ["/bin/sleep", "300"], limits: { wall_seconds: 0.3 } },
    wanted: { status: "timed_out", reason: "wall_limit" },
  },
  cancelled: {
    body: { argv: ["/bin/sh", "-c", "echo ready; exec sleep 300"] },
    wanted: { status: "cancelled", reason: "user" },
    isCancelled: true,
  },
  oom: {
    body: {
      language: "python",
      code: "b = []\nwhile True: b.append(bytearray(b'x' * (1 << 20)))",
      limits: { mem_mb: 32, disk_mb: 8 },
    },
    wanted: { status: "oom_killed", reason: "oom" },
  },
  daemon: {
    body: { language: "python", code: daemon },
    wanted: { status: "succeeded", stdout: "left\n" },
  },
  flood: {
    body: { argv: ["/bin/sh", "-c", "head -c 5000000 /dev/zero"] },
    wanted: { status: "succeeded", truncated: true },
  },
};

async function runKind(server: Serving, { body, isCancelled }: Kind) {
  const id = await server.submit(body);
  if (isCancelled === true) {
    using job = followJob(server, id);
    await job.until(outputHas("ready"));
    const cancelled = await server.request(`/v1/jobs/${id}`, { method: "DELETE" });
    expect(cancelled.status).toBe(200);
    await cancelled.body?.cancel();
  }
  const response = await server.request(`/v1/jobs/${id}/result?wait_seconds=120`);
  return (await response.json()) as Record<string, unknown>;
}

/** Runs so many jobs of all kinds in turn; returns the results that are not as wanted. */
async function runMany(server: Serving, count: number): Promise<unknown[]> {
  const names = Object.keys(kinds);
  const wrong: unknown[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      const name = names[next % names.length] ?? "";
      next += 1;
      const kind = kinds[name] as Kind;
      const result = await runKind(server, kind);
      for (const [field, value] of Object.entries(kind.wanted)) {
        if (result[field] !== value)
          wrong.push({ name, ...result, stdout: String(result["stdout"]).slice(0, 200) });
      }
    }
  };
  await Promise.all(Array.from({ length: ATONCE }, work));
  return wrong;
}

/** What a server has when nothing runs: sandboxes that wait have other names and ids each time. */
function idleSnapshot(of: Parameters<typeof hostSnapshot>[0]) {
  const { cgroups, ids, descriptors, ...rest } = hostSnapshot(of);
  const nameless = (path: string): string => path.replace(/\/s\d+(?=\/|$)/, "/s");
  const counts: Record<string, number> = {};
  for (const [target, count] of Object.entries(descriptors)) {
    const kind = nameless(target.replace(/(\/ids\/).*/, "$1"));
    counts[kind] = (counts[kind] ?? 0) + count;
  }
  return {
    ...rest,
    cgroups: cgroups.map(nameless).toSorted(),
    ids: ids.length,
    descriptors: counts,
  };
}

test(
  `${JOBS} mixed jobs, ${ATONCE} at once, leave the host as it was`,
  async () => {
    const { home, open } = await start();
    await using server = await open();
    const of = { home, pid: server.process.pid, instance: await instanceOf(server) };
    // Whatever is opened once and kept is there after one round.
    expect(await runMany(server, Object.keys(kinds).length)).toEqual([]);
    const before = await whenIdle(of);
    expect(before.cgroups.length).toBeGreaterThan(DEFAULT_POOL);

    expect(await runMany(server, JOBS)).toEqual([]);
    // Results are sent a moment before the last descriptor of a stream is closed.
    await until(() => (Bun.deepEquals(idleSnapshot(of), before) ? true : null), {
      what: "the host is as before",
      deadlineMs: 10_000,
    }).catch(() => undefined);
    expect(idleSnapshot(of)).toEqual(before);
    const status = (await (await server.request("/v1/status")).json()) as Record<string, unknown>;
    expect(status).toMatchObject({ running: 0, queued: 0 });
  },
  TIMEOUT_MS,
);

/** The snapshot once nothing is there but the sandboxes that wait. */
async function whenIdle(of: Parameters<typeof hostSnapshot>[0]) {
  // A file that is held locked stands for both ids of a sandbox.
  const wanted = {
    processes: Array.from({ length: DEFAULT_POOL }, () => "S cprg-init\0"),
    ids: DEFAULT_POOL,
  };
  await until(
    () => {
      const { processes, ids } = idleSnapshot(of);
      return Bun.deepEquals({ processes, ids }, wanted) ? true : null;
    },
    { what: "the pool is full", deadlineMs: 30_000 },
  ).catch(() => undefined);
  const snapshot = idleSnapshot(of);
  expect(snapshot).toMatchObject(wanted);
  return snapshot;
}

test(
  "a server killed under load ends what ran, runs once what waited, and leaves nothing",
  async () => {
    const { home, open } = await start();
    const mark = `e2e-${crypto.randomUUID()}`;
    const sleeper = `import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(300)
    os._exit(0)
os.wait()
print("ready", flush=True); time.sleep(300)`;
    const running: string[] = [];
    const queued: string[] = [];
    let instance = "";
    let groups: string[] = [];
    {
      await using server = await open();
      instance = await instanceOf(server);
      for (let index = 0; index < ATONCE; index += 1) {
        running.push(await server.submit({ language: "python", code: sleeper, args: [mark] }));
      }
      for (const id of running) {
        using job = followJob(server, id);
        await job.until(outputHas("ready"));
      }
      for (let index = 0; index < 2 * ATONCE; index += 1) {
        queued.push(await server.submit({ language: "python", code: `print("ran ${index}")` }));
      }
      expect(pidsWith(mark).length).toBe(2 * ATONCE);
      groups = readText(join(home.path, "run/instances", instance, "groups")).split("\n");
      expect(groups.flatMap(directoriesBeneath).length).toBeGreaterThan(ATONCE);
      await server.stop("SIGKILL");
    }
    await using again = await open();
    expect(pidsWith(mark)).toEqual([]);
    // A zombie is dead; the host's process 1 has inherited it and reaps it when it likes.
    const alive = sandboxProcesses({ pid: -1, instance }).filter(({ state }) => state !== "Z");
    expect(alive).toEqual([]);
    expect(groups.flatMap(directoriesBeneath)).toEqual([]);

    for (const id of running) {
      const job = (await (await again.request(`/v1/jobs/${id}`)).json()) as Record<string, unknown>;
      expect(job).toMatchObject({ status: "error", reason: "interrupted" });
      const events = await eventsOf(again, id);
      expect(events.filter(isKind("finished"))).toHaveLength(1);
      expect(events.at(-1)?.kind).toBe("finished");
    }
    for (const [index, id] of queued.entries()) {
      const response = await again.request(`/v1/jobs/${id}/result?wait_seconds=120`);
      expect(await response.json()).toMatchObject({
        status: "succeeded",
        stdout: `ran ${index}\n`,
      });
      const events = await eventsOf(again, id);
      for (const kind of ["queued", "started", "finished"] as const) {
        expect(events.filter(isKind(kind))).toHaveLength(1);
      }
    }
    const of = { home, pid: again.process.pid, instance: await instanceOf(again) };
    const after = await whenIdle(of);
    expect(after.files.filter((path) => path.includes(instance))).toEqual([]);
  },
  TIMEOUT_MS,
);

async function eventsOf(server: Serving, id: string): Promise<EventRow[]> {
  const replay = await (await server.request(`/v1/jobs/${id}/replay`)).json();
  return (replay as { events: EventRow[] }).events;
}
