// Limits as the kernel keeps them: read on the host while a program runs, and hit by programs that
// try to exceed them while the server goes on answering.

import { afterAll, beforeAll, expect } from "bun:test";
import { join } from "node:path";
import type { EventRow } from "../../src/core/event.ts";
import { requireHost } from "../helpers/host.ts";
import { type Home, makeHome } from "./cprg.ts";
import { followJob, isKind, outputHas } from "./job-events.ts";
import { cgroupDirectories, readText, sandboxProcesses } from "./sandbox-processes.ts";
import { type Serving, serve } from "./server.ts";

const host = requireHost({ root: true, cgroup: true });
const { test } = host;
const MIB = 1024 * 1024;

let home: Home;
let server: Serving;
let instance: string;

beforeAll(async () => {
  if (host.missing.length > 0) return;
  home = makeHome();
  // Without a pool whatever is left is a job's.
  const words = ["--tenant-concurrency", "4", "--pool", "0", "--log", "warn"];
  server = await serve(home, { words });
  const status = (await (await server.request("/v1/status")).json()) as { instance: string };
  instance = status.instance;
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  home?.[Symbol.dispose]();
});

/** Runs a job while `/healthz` is asked without a pause; every answer must be good. */
async function runWatched(body: Readonly<Record<string, unknown>>) {
  const id = await server.submit(body);
  let isOver = false;
  const answers: string[] = [];
  const asking = (async () => {
    while (!isOver) {
      const response = await fetch(`${server.url}/healthz`);
      answers.push(`${response.status} ${((await response.json()) as { ok: boolean }).ok}`);
    }
  })();
  const response = await server.request(`/v1/jobs/${id}/result?wait_seconds=120`);
  const result = (await response.json()) as Record<string, unknown>;
  isOver = true;
  await asking;
  expect(answers.length).toBeGreaterThan(0);
  expect(answers.filter((answer) => answer !== "200 true")).toEqual([]);
  const replay = await (await server.request(`/v1/jobs/${id}/replay`)).json();
  return { result, events: (replay as { events: EventRow[] }).events };
}

function limitEvents(events: readonly EventRow[]) {
  return events.filter(isKind("limit")).map(({ data }) => data as { limit: string });
}

/** What a group file holds, or null where the group has no such file. */
function value(directory: string, file: string): string | null {
  return readText(join(directory, file)).trim() || null;
}

/** The values of the first of the files that any of the groups has. */
function values(directories: readonly string[], ...files: string[]): string[] {
  for (const file of files) {
    const found = directories.flatMap((directory) => value(directory, file) ?? []);
    if (found.length > 0) return found;
  }
  return [];
}

test("a running program is in the groups whose values are the request", async () => {
  const mark = `e2e-${crypto.randomUUID()}`;
  const code = `import os, time
for _ in range(3):
    if os.fork() == 0: time.sleep(300)
print("ready", flush=True); time.sleep(300)`;
  const limits = { mem_mb: 200, pids: 37, cpu_cores: 0.75, disk_mb: 50 };
  const id = await server.submit({ language: "python", code, args: [mark], limits });
  using job = followJob(server, id);
  await job.until(outputHas("ready"));
  const pids = sandboxProcesses({ pid: server.process.pid, instance })
    .filter(({ command }) => command.includes(mark))
    .map(({ pid }) => pid);
  expect(pids).toHaveLength(4);
  const all = cgroupDirectories(home, instance);
  for (const pid of pids) {
    const own = all.filter((directory) =>
      (value(directory, "cgroup.procs") ?? "").split("\n").includes(String(pid)),
    );
    expect(own.length).toBeGreaterThan(0);
    // On v2 a limit of an outer group counts for the inner ones.
    const groups = all.filter((directory) =>
      own.some((inner) => inner === directory || inner.startsWith(`${directory}/`)),
    );
    expect(values(groups, "memory.limit_in_bytes", "memory.max")).toContain(String(200 * MIB));
    expect(values(groups, "pids.max")).toContain("37");
    const quota = values(groups, "cpu.cfs_quota_us").map((us) => `${us} 100000`);
    expect([...quota, ...values(groups, "cpu.max")]).toContain("75000 100000");
  }
  const cancelled = await server.request(`/v1/jobs/${id}`, { method: "DELETE" });
  expect(cancelled.status).toBe(200);
  expect(await cancelled.json()).toMatchObject({ status: "cancelled", limits });
});

test("a memory bomb is killed by the kernel's count, and said so", async () => {
  const code = `blocks = []
while True: blocks.append(bytearray(b"x" * (1 << 20)))`;
  const { result, events } = await runWatched({
    language: "python",
    code,
    limits: { mem_mb: 64, disk_mb: 16 },
  });
  expect(result).toMatchObject({ status: "oom_killed", reason: "oom", signal: "SIGKILL" });
  expect(limitEvents(events)).toEqual([
    expect.objectContaining({ limit: "mem_mb", value: 64, sampled: false }),
  ]);
});

test("a child that is killed for memory leaves the end to its parent", async () => {
  const code = `import os, sys
if os.fork() == 0:
    blocks = []
    while True: blocks.append(bytearray(b"x" * (1 << 20)))
status = os.wait()[1]
print(os.WTERMSIG(status)); sys.exit(3)`;
  const { result, events } = await runWatched({
    language: "python",
    code,
    limits: { mem_mb: 64, disk_mb: 16 },
  });
  // On cgroup v2 the program's whole group dies with it (memory.oom.group).
  const isGroup = result["status"] === "oom_killed";
  expect(result).toMatchObject(
    isGroup ? { reason: "oom" } : { status: "failed", reason: "exit", exit_code: 3, stdout: "9\n" },
  );
  expect(limitEvents(events).map(({ limit }) => limit)).toEqual(["mem_mb"]);
});

test("a program that kills itself or exits with 137 has failed, nothing more", async () => {
  const kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)";
  const killed = await runWatched({ language: "python", code: kill });
  expect(killed.result).toMatchObject({
    status: "failed",
    reason: "signal",
    signal: "SIGKILL",
    exit_code: null,
    limits_hit: [],
  });
  const exited = await runWatched({ language: "python", code: "raise SystemExit(137)" });
  expect(exited.result).toMatchObject({
    status: "failed",
    reason: "exit",
    signal: null,
    exit_code: 137,
    limits_hit: [],
  });
});

test("a fork bomb has as many processes as it may, and the server answers", async () => {
  const code = `import os
print("ready", flush=True)
while True:
    try: os.fork()
    except OSError: pass`;
  const limits = { pids: 40, wall_seconds: 3, cpu_cores: 1 };
  const { result, events } = await runWatched({ language: "python", code, limits });
  expect(result).toMatchObject({ status: "timed_out", reason: "wall_limit" });
  const names = limitEvents(events).map(({ limit }) => limit);
  expect(names.toSorted()).toEqual(["pids", "wall_seconds"]);
  const seen = events.filter(isKind("usage")).map(({ data }) => (data as { pids: number }).pids);
  expect(Math.max(0, ...seen)).toBeLessThanOrEqual(40);
  const { usage } = result as { usage: { pids_peak: number } };
  expect(usage.pids_peak).toBe(40);
  const left = sandboxProcesses({ pid: server.process.pid, instance });
  expect(left.map(({ command }) => command)).toEqual([]);
});

test("a program that fills the disk gets no more than disk_mb, wherever it writes", async () => {
  const code = `import errno, os
total = 0
for place in ("/workspace", "/home/agent", "/tmp", "/dev/shm"):
    try:
        for number in range(1000):
            with open(f"{place}/{number}", "wb", buffering=0) as file:
                for _ in range(8): total += file.write(bytes(1 << 20))
    except OSError as error:
        print(place, errno.errorcode[error.errno])
print(total >> 20)`;
  const limits = { disk_mb: 32, mem_mb: 128 };
  const { result, events } = await runWatched({ language: "python", code, limits });
  expect(result).toMatchObject({ status: "succeeded", exit_code: 0 });
  const lines = String(result["stdout"]).trim().split("\n");
  expect(lines.slice(0, 4)).toEqual(
    ["/workspace", "/home/agent", "/tmp", "/dev/shm"].map((place) => `${place} ENOSPC`),
  );
  expect(Number(lines[4])).toBeLessThanOrEqual(32);
  expect(Number(lines[4])).toBeGreaterThan(16);
  expect(limitEvents(events)).toEqual([
    expect.objectContaining({ limit: "disk_mb", value: 32, sampled: true }),
  ]);
});

test("a program that makes files gets no more than inodes", async () => {
  const code = `import errno, os
count = 0
try:
    while True:
        open(f"/tmp/{count}", "w").close()
        count += 1
except OSError as error:
    print(errno.errorcode[error.errno], count)`;
  const { result, events } = await runWatched({
    language: "python",
    code,
    limits: { inodes: 500 },
  });
  const [name, count] = String(result["stdout"]).trim().split(" ");
  expect(name).toBe("ENOSPC");
  // The code file is one of them.
  expect(Number(count)).toBe(499);
  expect(limitEvents(events)).toEqual([
    expect.objectContaining({ limit: "inodes", value: 500, sampled: true }),
  ]);
});
