// A program that prints a gigabyte on both streams at once, to a reader that never reads: the
// server's memory does not follow, and others are served.

import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { EventRow } from "../../src/core/event.ts";
import { requireHost } from "../helpers/host.ts";
import { connectWithoutReading } from "../http/ws-client.ts";
import { makeHome } from "./cprg.ts";
import { statusFields } from "./sandbox-processes.ts";
import { type Serving, serve } from "./server.ts";

const { test } = requireHost({ root: true, cgroup: true });

const KIB = 1024;
const MIB = 1024 * KIB;
const FLOOD_MIB = 1024;
const WARM_UP_MIB = 8;
const GROWTH_MAX = 32 * MIB;
/** For a host that is busy with other things; the tests wait for conditions, never for it. */
const TIMEOUT_MS = 300_000;
/** What is kept of a stream, in KiB; everything above it is dropped. */
const KEPT_KB = { "by default": 1024, "at the ceiling": 65_536 } as const;

/** Both streams in turn would wait for each other; two processes do not. */
const flood = `import os, sys
block = b"x" * (1 << 20)
child = os.fork()
fd = 2 if child == 0 else 1
for _ in range(int(sys.argv[1]) // 2):
    left = memoryview(block)
    while left: left = left[os.write(fd, left):]
if child == 0: os._exit(0)
sys.exit(0 if os.waitpid(child, 0)[1] == 0 else 1)`;

/** Peak resident set since it was last reset, in bytes (proc_pid_status(5)). */
function peakBytes(pid: number): number {
  return Number.parseInt(statusFields(pid)["VmHWM"] ?? "", 10) * KIB;
}

/** Resets the peak to what is resident now (proc_pid_clear_refs(5)). */
function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}

/** Submits a job and asks for it without a pause until it has ended. */
async function runAsking(server: Serving, body: Readonly<Record<string, unknown>>) {
  const id = await server.submit(body);
  const socket = await connectWithoutReading(
    new URL(`${server.url}/v1/jobs/${id}/stream`),
    server.key,
  );
  const answers: string[] = [];
  for (;;) {
    const response = await server.request(`/v1/jobs/${id}`);
    const { status } = (await response.json()) as { status: string };
    answers.push(`${response.status} ${status}`);
    if (status !== "queued" && status !== "running") break;
  }
  socket.destroy();
  return { id, answers };
}

async function resultOf(server: Serving, id: string): Promise<Record<string, unknown>> {
  const response = await server.request(`/v1/jobs/${id}/result?wait_seconds=60`);
  return (await response.json()) as Record<string, unknown>;
}

function floodJob(mib: number, output_kb: number) {
  return {
    language: "python",
    code: flood,
    args: [String(mib)],
    limits: {
      wall_seconds: 200,
      cpu_seconds: 200,
      cpu_cores: availableParallelism(),
      output_kb,
    },
  };
}

for (const [how, output_kb] of Object.entries(KEPT_KB))
  test(
    `a gigabyte on two streams and a reader that never reads stay within 32 MiB, ${how}`,
    async () => {
      const kept = output_kb * KIB;
      using home = makeHome();
      await using server = await serve(home, { words: ["--log", "warn"] });
      const { pid } = server.process;
      // What is loaded and grown once is no flood: the same kind of job, a hundredth as long.
      await runAsking(server, floodJob(WARM_UP_MIB, output_kb));
      resetPeak(pid);
      const baseline = peakBytes(pid);
      expect(baseline).toBeGreaterThan(0);

      const beside = await server.submit({ language: "python", code: "print('beside it')" });
      const { id, answers } = await runAsking(server, floodJob(FLOOD_MIB, output_kb));
      const growth = peakBytes(pid) - baseline;
      console.log(`baseline ${baseline / MIB} MiB, peak ${(growth / MIB).toFixed(1)} MiB above it`);
      const result = await resultOf(server, id);

      expect(result).toMatchObject({ status: "succeeded", exit_code: 0, truncated: true });
      expect(String(result["stdout"]).length).toBe(kept);
      expect(String(result["stderr"]).length).toBe(kept);
      expect(await resultOf(server, beside)).toMatchObject({
        status: "succeeded",
        stdout: "beside it\n",
      });
      expect(answers).toContain("200 running");
      expect(answers.filter((answer) => !/^200 (queued|running|succeeded)$/.test(answer))).toEqual(
        [],
      );
      const replay = await (await server.request(`/v1/jobs/${id}/replay`)).json();
      const cut = (replay as { events: EventRow[] }).events
        .filter(({ kind }) => kind === "truncated")
        .map(({ data }) => data);
      expect(cut).toHaveLength(2);
      for (const stream of ["stdout", "stderr"]) {
        expect(cut).toContainEqual({ stream, limit_bytes: kept } as never);
      }
      expect(growth).toBeLessThanOrEqual(GROWTH_MAX);
    },
    TIMEOUT_MS,
  );
