// Many jobs through one server: none is lost, none runs twice, what is past its retention goes
// meanwhile, and the server does not grow. CPRG_LOAD_JOBS says how many.

import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { newId } from "../../src/core/ids.ts";
import { openStore } from "../../src/store/open.ts";
import { requireHost } from "../helpers/host.ts";
import { sampleJob, sampleOutcome, sampleSpec, stdout } from "../store/samples.ts";
import { type Home, makeHome } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";
import { until } from "./until.ts";
import { openWitness, WITNESSED } from "./witness.ts";

const jobs = Number(process.env["CPRG_LOAD_JOBS"] ?? 300);
const CONCURRENCY = 16;
/** Jobs of long ago that are in the store when the server starts. */
const OLD_JOBS = 40;
const WEEKS_MS = 30 * 24 * 3_600_000;
/** Growth between the first half and the second that is no slope: what a collection frees. */
const SLOPE_BYTES_MAX = 48 * 1024 * 1024;

const { test } = requireHost({ root: true, cgroup: true, programs: ["mkfifo"] });

test(
  `${jobs} jobs at concurrency ${CONCURRENCY}: none lost, none doubled, no slope`,
  async () => {
    using home = makeHome();
    const old = await fillWithOldJobs(home);
    await using witness = await openWitness(home);
    const slots = ["--job-slots", `${CONCURRENCY}`, "--tenant-concurrency", `${CONCURRENCY}`];
    const words = ["--binds", witness.bind, "--log", "warn", ...slots];
    await using server = await serve(home, { words });
    const samples: number[] = [];
    const marks = new Map<string, string>();
    let next = 0;
    const client = async (): Promise<void> => {
      while (next < jobs) {
        next += 1;
        const mark = newId();
        const id = await server.submit({ argv: [...WITNESSED, mark] });
        marks.set(id, mark);
        await expectSuccess(server, { id, mark });
        samples.push(rssBytes(server.process.pid));
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, client));

    const counts = await witness.counts();
    expect(marks.size).toBe(jobs);
    for (const mark of marks.values()) expect([mark, counts.get(mark)]).toEqual([mark, 1]);
    await until(
      async () => ((await server.request(`/v1/jobs/${old.at(-1)}`)).status === 404 ? true : null),
      { what: "old jobs are gone" },
    );
    for (const id of old) expect((await server.request(`/v1/jobs/${id}`)).status).toBe(404);
    checkSlope(samples);
    expect(await server.stop()).toBe(0);
  },
  120_000 + jobs * 400,
);

/** Jobs that ended long before the retention; with a MiB of output in all. */
async function fillWithOldJobs(home: Home): Promise<string[]> {
  const store = await openStore({ path: join(home.dataDir, "cprg.db") });
  const at = Date.now() - WEEKS_MS;
  const ids = Array.from({ length: OLD_JOBS }, async () => {
    const job = sampleJob({ tenant: "default", createdAt: at });
    await store.jobs.insert(job, sampleSpec());
    const started = await store.jobs.start(job.id, "long-gone", at);
    await store.events.append(`job:${job.id}`, [stdout("x".repeat(25_000), at)]);
    await store.jobs.finish(job.id, started?.owner ?? null, sampleOutcome(), at);
    return job.id;
  });
  const done = await Promise.all(ids);
  await store.close();
  return done;
}

async function expectSuccess(server: Serving, job: { id: string; mark: string }): Promise<void> {
  const response = await server.request(`/v1/jobs/${job.id}/result?wait_seconds=120`);
  const result = (await response.json()) as { status: string; stdout: string };
  expect([result.status, result.stdout]).toEqual(["succeeded", `${job.mark}\n`]);
}

function rssBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}

/** The first quarter warms up; of the rest, the least of the second half is not far above the first's. */
function checkSlope(samples: readonly number[]): void {
  const warm = samples.slice(Math.floor(samples.length / 4));
  const middle = Math.floor(warm.length / 2);
  const first = Math.min(...warm.slice(0, middle));
  const second = Math.min(...warm.slice(middle));
  console.log(`rss MiB: ${[samples[0] ?? 0, first, second].map((n) => Math.round(n / 2 ** 20))}`);
  expect(second - first).toBeLessThan(SLOPE_BYTES_MAX);
}
