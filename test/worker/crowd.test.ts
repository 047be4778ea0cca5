// Many workers, each with a TCP connection of its own from a few other processes: all of them are
// claimed at once, run one exec each and are let go. CPRG_WORKERS_COUNT says how many.

import { afterEach, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { until } from "./ground.ts";
import { startPlane, TOKEN } from "./process.ts";

setDefaultTimeout(300_000);
const COUNT = Number(process.env["CPRG_WORKERS_COUNT"] ?? 100);
const PROCESSES = 4;
const FIXTURE = join(import.meta.dir, "../fixtures/many-dialers.ts");
const ESTABLISHED = "01";
/** Of the control plane for each worker that was claimed, ran and was let go. */
const RSS_BYTES_MAX = 256 * 1024;

const ECHO = { executable: "/bin/sh", arguments: ["-c", 'echo "$WORKER"'] };

const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

/** Connections to a port that are accepted, as the kernel counts them. */
function connections(port: number): number {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const sockets = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, at, , state]) => at?.endsWith(local) && state === ESTABLISHED);
  // By where they come from: a table that changes while it is read can show a line twice.
  return new Set(sockets.map(([, , from]) => from)).size;
}

function startDialers(port: number, count: number): Bun.Subprocess<"pipe"> {
  const child = Bun.spawn([process.execPath, FIXTURE, `${port}`, `${count}`, TOKEN], {
    stdin: "pipe",
    stdout: "ignore",
    stderr: "inherit",
  });
  undo.push(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  return child;
}

test(`${COUNT} workers are claimed at once and run one exec each`, async () => {
  const plane = await startPlane({ liveness: { heartbeatSeconds: 30, silenceMs: 75_000 } });
  undo.push(() => plane.close());
  const each = Math.ceil(COUNT / PROCESSES);
  const counts = Array.from({ length: PROCESSES }, (_, i) =>
    Math.max(0, Math.min(each, COUNT - i * each)),
  );
  const dialers = counts.map((count) => startDialers(plane.port, count));
  await until(() => plane.registry.connected.length === COUNT);
  expect(connections(plane.port)).toBe(COUNT);
  const rssBytes = process.memoryUsage().rss;

  const claimed = await Promise.all(
    Array.from({ length: COUNT }, (_, i) => plane.registry.claim({ taskId: `t${i}`, epoch: 1 })),
  );
  expect(plane.registry.claimCount).toBe(COUNT);
  const ran = await Promise.all(claimed.map((one) => new WorkerLease(one, {}).invoke(ECHO)));
  expect(new Set(ran.map(({ status }) => status))).toEqual(new Set([0]));
  // Each exec ran on a worker of its own, in one of the processes.
  expect(new Set(ran.map(({ stdout }) => stdout.split(" ")[0])).size).toBe(COUNT);
  const pids = new Set(ran.map(({ stdout }) => Number(stdout.trim().split(" ")[1])));
  expect([...pids].sort()).toEqual(dialers.map(({ pid }) => pid).sort());
  expect(process.memoryUsage().rss - rssBytes).toBeLessThan(COUNT * RSS_BYTES_MAX);

  await Promise.all(claimed.map((one) => one.release()));
  expect(plane.registry.claimCount).toBe(0);
  for (const dialer of dialers) dialer.stdin.end();
  await until(() => plane.registry.connected.length === 0 && connections(plane.port) === 0);
});
