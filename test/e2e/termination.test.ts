// Ends that are forced: whatever a program does, nothing of its sandbox is left on the host at the
// instant a subscriber receives `finished`.

import { afterAll, beforeAll, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { EventRow } from "../../src/core/event.ts";
import { requireHost } from "../helpers/host.ts";
import { type Home, makeHome } from "./cprg.ts";
import { followJob, isKind, outputHas } from "./job-events.ts";
import {
  cgroupDirectories,
  type HostProcess,
  sandboxName,
  sandboxProcesses,
} from "./sandbox-processes.ts";
import { type Serving, serve } from "./server.ts";

const host = requireHost({ root: true, cgroup: true });
const { test } = host;

/** How often each of the stubborn programs is ended. */
const repeats = Number(process.env["CPRG_TEST_REPEATS"] ?? "100");
const ATONCE = 8;
/** For a host that is busy with other things; the tests wait for conditions, never for it. */
const TIMEOUT_MS = 300_000;

const daemon = readFileSync(join(import.meta.dir, "../fixtures/e2e-daemon.py"), "utf8");

let home: Home;
let server: Serving;
let instance: string;

beforeAll(async () => {
  if (host.missing.length > 0) return;
  home = makeHome();
  const slots = String(ATONCE);
  // Without a pool whatever is left is a job's.
  const words = ["--job-slots", slots, "--tenant-concurrency", slots, "--pool", "0"];
  server = await serve(home, { words: [...words, "--log", "warn"] });
  const status = (await (await server.request("/v1/status")).json()) as { instance: string };
  instance = status.instance;
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  home?.[Symbol.dispose]();
});

function processes(): HostProcess[] {
  return sandboxProcesses({ pid: server.process.pid, instance });
}

/** What one run showed on the host. */
interface Seen {
  readonly finished: EventRow;
  readonly events: readonly EventRow[];
  /** Processes of the sandbox once the program was ready, process 1 among them. */
  readonly before: number;
  /** What was there of it when `finished` arrived, processes and groups. */
  readonly left: readonly string[];
}

/** Runs a program that says `ready`, and looks at the host as its events arrive. */
async function watch(body: Readonly<Record<string, unknown>>): Promise<Seen | null> {
  using job = await submitWatched(body);
  const finished = await job.followed.until(isKind("finished"));
  expect(await job.followed.closed).toBe(1000);
  return job.seen(finished);
}

/** Submits a program with a mark in its command line and follows it. */
async function submitWatched(body: Readonly<Record<string, unknown>>) {
  const mark = `e2e-${crypto.randomUUID()}`;
  const args = [mark, ...((body["args"] as string[] | undefined) ?? [])];
  const id = await server.submit({ ...body, args });
  let name: string | null = null;
  let before = 0;
  let left: string[] = [];
  const followed = followJob(server, id, {
    onEvent: (event) => {
      if (name === null && outputHas("ready")(event)) {
        const all = processes();
        const program = all.find(({ command }) => command.includes(mark));
        name = program === undefined ? null : sandboxName(program, instance);
        before = all.filter((process) => sandboxName(process, instance) === name).length;
      }
      if (event.kind === "finished") left = leftovers({ name, mark });
    },
  });
  return {
    id,
    followed,
    /** Null when the program was gone again before it could be looked at. */
    seen: (finished: EventRow): Seen | null =>
      name === null ? null : { finished, events: followed.events, before, left },
    [Symbol.dispose]: () => followed[Symbol.dispose](),
  };
}

function leftovers({ name, mark }: { name: string | null; mark: string }): string[] {
  const alive = processes()
    .filter((process) => process.command.includes(mark) || isIn(process, name))
    .map(({ pid, state, command }) => `${pid} ${state} ${command}`);
  const groups = cgroupDirectories(home, instance).filter(
    (directory) => name !== null && directory.split("/").includes(name),
  );
  return [...alive, ...groups];
}

function isIn(process: HostProcess, name: string | null): boolean {
  return name !== null && sandboxName(process, instance) === name;
}

/** How much more time a program gets that was not ready in time, and the most. */
const SLOWER = 1.2;
const SLOWEST = 2.5;

/**
 * Runs a program until it was seen often enough, a few at once. One that its limit ends before it was
 * ready has shown nothing: it does not count, and the next ones get more time, as this machine is slow.
 */
async function watchRepeatedly(
  bodyOf: (round: number, slowness: number) => Readonly<Record<string, unknown>>,
  /** Processes that it must have had when it was looked at; fewer were being ended already. */
  processesLeast = 2,
): Promise<{ readonly round: number; readonly one: Seen }[]> {
  let triesLeft = 4 * repeats;
  let slowness = 1;
  const seen: { readonly round: number; readonly one: Seen }[] = [];
  const work = async (): Promise<void> => {
    while (seen.length < repeats && triesLeft > 0) {
      triesLeft -= 1;
      const round = triesLeft;
      const one = await watch(bodyOf(round, slowness));
      if (one !== null && one.before >= processesLeast) seen.push({ round, one });
      else slowness = Math.min(slowness * SLOWER, SLOWEST);
    }
  };
  await Promise.all(Array.from({ length: ATONCE }, work));
  expect(seen.length).toBeGreaterThanOrEqual(repeats);
  return seen;
}

function hits(events: readonly EventRow[]): string[] {
  return events.filter(isKind("limit")).map(({ data }) => (data as { limit: string }).limit);
}

const stubborn: Readonly<Record<string, string>> = {
  "a busy loop": `print("ready", flush=True)
while True: pass`,
  "a program that ignores every signal it can": `import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
print("ready", flush=True)
while True: time.sleep(1)`,
  "a program stopped by SIGSTOP, and its children": `import os, signal, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(0.05)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)`,
  "a program with 50 children": `import os, time
for _ in range(50):
    if os.fork() == 0:
        while True: time.sleep(60)
print("ready", flush=True)
while True: time.sleep(60)`,
};

for (const [title, code] of Object.entries(stubborn)) {
  test(
    `${title} has timed out, and nothing is left when \`finished\` arrives, ${repeats} times`,
    async () => {
      const bodyOf = (_: number, slowness: number) => {
        return { language: "python", code, limits: { wall_seconds: 4 * slowness } };
      };
      const least = title.includes("50") ? 52 : 2;
      for (const { one } of await watchRepeatedly(bodyOf, least)) {
        expect(one.finished.data).toMatchObject({
          status: "timed_out",
          reason: "wall_limit",
          exit_code: null,
          signal: "SIGKILL",
        });
        expect(hits(one.events)).toEqual(["wall_seconds"]);
        expect(one.left).toEqual([]);
      }
      expect(processes()).toEqual([]);
    },
    TIMEOUT_MS,
  );
}

test("a busy program that spreads over its children is ended by the CPU they use", async () => {
  const code = `import os
for _ in range(4):
    if os.fork() == 0:
        while True: pass
print("ready", flush=True)
os.wait()`;
  const limits = { wall_seconds: 60, cpu_seconds: 1, cpu_cores: 2 };
  const { finished, events, left } = (await watch({ language: "python", code, limits })) as Seen;
  expect(finished.data).toMatchObject({ status: "timed_out", reason: "cpu_limit" });
  expect(hits(events)).toEqual(["cpu_seconds"]);
  expect(left).toEqual([]);
});

test(
  `a daemon that forks while it is killed is gone with its job, ${repeats} times`,
  async () => {
    const wayOf = (round: number): string => (round % 2 === 0 ? "stay" : "leave");
    const seen = (
      await watchRepeatedly((round) => ({
        language: "python",
        code: daemon,
        args: [wayOf(round)],
        limits: { wall_seconds: wayOf(round) === "stay" ? 2 : 60, pids: 12, cpu_cores: 0.5 },
      }))
    ).map(({ round, one }) => ({ way: wayOf(round), one }));
    expect(new Set(seen.map(({ way }) => way))).toEqual(new Set(["stay", "leave"]));
    expect(seen.flatMap(({ one }) => one.left)).toEqual([]);
    for (const { way, one } of seen) {
      const { status, killed } = one.finished.data as { status: string; killed: number };
      expect({ way, status }).toEqual({ way, status: way === "stay" ? "timed_out" : "succeeded" });
      expect(killed).toBeGreaterThan(0);
      expect(hits(one.events).includes("wall_seconds")).toBe(way === "stay");
    }
    expect(processes()).toEqual([]);
  },
  TIMEOUT_MS,
);

test("a job that runs is cancelled, its program asked first; the second time is a conflict", async () => {
  const code = `import signal, sys, time
def ask(*_):
    print("asked", flush=True); sys.exit(7)
signal.signal(signal.SIGTERM, ask)
print("ready", flush=True); time.sleep(300)`;
  using job = await submitWatched({ language: "python", code });
  const path = `/v1/jobs/${job.id}`;
  await job.followed.until(outputHas("ready"));
  const first = await server.request(path, { method: "DELETE" });
  expect(first.status).toBe(200);
  expect(await first.json()).toMatchObject({ status: "cancelled", reason: "user" });
  await job.followed.until(outputHas("asked"));
  const seen = job.seen(await job.followed.until(isKind("finished")));
  expect(seen?.before).toBe(2);
  expect(seen?.left).toEqual([]);
  const second = await server.request(path, { method: "DELETE" });
  expect(second.status).toBe(409);
});

test("a job that waits is cancelled without a sandbox; the second time is a conflict", async () => {
  const code = "import time; print('ready', flush=True); time.sleep(300)";
  const running: string[] = [];
  for (let index = 0; index < ATONCE; index += 1) {
    running.push(await server.submit({ language: "python", code }));
  }
  for (const id of running) {
    using job = followJob(server, id);
    await job.until(outputHas("ready"));
  }
  const id = await server.submit({ language: "python", code });
  using job = followJob(server, id);
  expect(await (await server.request(`/v1/jobs/${id}`)).json()).toMatchObject({ status: "queued" });
  const before = processes().length;
  const first = await server.request(`/v1/jobs/${id}`, { method: "DELETE" });
  expect(first.status).toBe(200);
  expect(await first.json()).toMatchObject({ status: "cancelled", started_at: null });
  await job.until(isKind("finished"));
  expect(job.events.map(({ kind }) => kind)).toEqual(["queued", "finished"]);
  expect(processes().length).toBe(before);
  expect((await server.request(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(409);
  for (const other of running) {
    expect((await server.request(`/v1/jobs/${other}`, { method: "DELETE" })).status).toBe(200);
  }
});
