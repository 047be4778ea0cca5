// A server that is killed again and again under load: nothing that was promised is lost, nothing runs
// twice, and every log is whole. CPRG_CRASH_ROUNDS says how often, CPRG_CRASH_SEED repeats a run.

import { expect } from "bun:test";
import { createPublicKey } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { verifyExport } from "../../src/core/verify.ts";
import { requireHost } from "../helpers/host.ts";
import { printedSeed, seeded } from "../helpers/seeded.ts";
import { call, type Home, makeHome } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";
import { until } from "./until.ts";
import { openWitness, WITNESSED, type Witness } from "./witness.ts";

const rounds = Number(process.env["CPRG_CRASH_ROUNDS"] ?? 5);
/** Longest time from a server's start to its death. */
const LIFE_MS = 700;
/** Jobs that a round may promise, so that the queue cannot grow without end. */
const ROUND_JOBS_MAX = 24;
const SUBMITTERS = 4;

const { test } = requireHost({ root: true, cgroup: true, programs: ["mkfifo"] });

/** What the test was promised: the marks of jobs that were answered with 201, by their ids. */
type Promised = Map<string, string>;

interface JobView {
  readonly job_id: string;
  readonly status: string;
  readonly reason: string | null;
  readonly labels: { readonly mark?: string };
}

test(
  `killed in ${rounds} rounds: whole logs, one end for each job, and none ran twice`,
  async () => {
    const random = seeded(printedSeed("CPRG_CRASH_SEED"));
    using home = makeHome();
    await using witness = await openWitness(home);
    const promised: Promised = new Map();
    for (let round = 0; round < rounds; round += 1) {
      await using server = await serveAgain(home, witness);
      const load = loadUntilDeath(server, { round, promised });
      await Bun.sleep(random() * LIFE_MS);
      await server.stop("SIGKILL");
      await load;
    }
    await using last = await serveAgain(home, witness);
    const jobs = await until(
      async () => {
        const all = await allJobs(last);
        return all.every(({ status }) => !["queued", "running"].includes(status)) ? all : null;
      },
      { what: "the queue is empty", deadlineMs: 120_000 },
    );
    checkEnds(jobs, promised);
    checkWitness(jobs, await witness.counts());
    for (const { job_id: id } of jobs) await checkLog(last, { home, id });
    expect(promised.size).toBeGreaterThan(rounds);
    expect(await last.stop()).toBe(0);
  },
  60_000 + rounds * 15_000,
);

function serveAgain(home: Home, witness: Witness): Promise<Serving> {
  const words = ["--binds", witness.bind, "--tenant-concurrency", "4"];
  return serve(home, { words, env: { CPRG_LOG: "error" } });
}

/** Submits jobs from several clients until the server does not answer any more. */
async function loadUntilDeath(
  server: Serving,
  { round, promised }: { readonly round: number; readonly promised: Promised },
): Promise<void> {
  let submitted = 0;
  const submitter = async (): Promise<void> => {
    while (submitted < ROUND_JOBS_MAX) {
      submitted += 1;
      const mark = `${round}-${submitted}-${crypto.randomUUID()}`;
      const body = { argv: [...WITNESSED, mark], labels: { mark } };
      const id = await server.submit(body).catch(() => null);
      if (id === null) return;
      promised.set(id, mark);
    }
  };
  await Promise.all(Array.from({ length: SUBMITTERS }, submitter));
}

async function allJobs(server: Serving): Promise<JobView[]> {
  const jobs: JobView[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    const response = await server.request(`/v1/jobs?limit=500${query}`);
    const page = (await response.json()) as { jobs: JobView[]; next_cursor: string | null };
    jobs.push(...page.jobs);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return jobs;
}

function checkEnds(jobs: readonly JobView[], promised: Promised): void {
  const byId = new Map(jobs.map((job) => [job.job_id, job]));
  expect(byId.size).toBe(jobs.length);
  for (const [id, mark] of promised) expect(byId.get(id)?.labels.mark).toBe(mark);
  const ends = jobs.map(({ status, reason }) => `${status}/${reason}`);
  expect([...new Set(ends)].filter((end) => !ENDS.includes(end))).toEqual([]);
  console.log(`jobs: ${jobs.length}, interrupted: ${ends.filter((end) => end === ENDS[1]).length}`);
}

/** What a job can come to: it ran, or a death of the server interrupted it. */
const ENDS = ["succeeded/exit", "error/interrupted"];

function checkWitness(jobs: readonly JobView[], counts: ReadonlyMap<string, number>): void {
  const doubled = [...counts].filter(([, count]) => count > 1);
  expect(doubled).toEqual([]);
  for (const { status, labels } of jobs) {
    const count = counts.get(labels.mark ?? "") ?? 0;
    if (status === "succeeded") expect([labels.mark, count]).toEqual([labels.mark, 1]);
  }
  const known = new Set(jobs.map(({ labels }) => labels.mark));
  const unknown = [...counts.keys()].filter(
    (mark) => !mark.startsWith("until") && !known.has(mark),
  );
  expect(unknown).toEqual([]);
}

/** The sealed log of a job: whole, signed, with one end; one of them by the command too. */
async function checkLog(server: Serving, { home, id }: { home: Home; id: string }): Promise<void> {
  const response = await fetch(`${server.url}/v1/jobs/${id}/replay`, {
    headers: { Authorization: `Bearer ${server.key}`, Accept: "application/x-ndjson" },
  });
  const text = await response.text();
  const publicKey = createPublicKey(readFileSync(join(home.dataDir, "signing-key.pub.pem")));
  const source = (async function* () {
    yield Buffer.from(text);
  })();
  expect(await verifyExport(source, { publicKey })).toMatchObject({
    ok: true,
    subject: `job:${id}`,
    complete: true,
  });
  const kinds = text.split("\n").map((line) => /"kind":"(\w+)"/.exec(line)?.[1]);
  expect(kinds.filter((kind) => kind === "finished")).toHaveLength(1);
  expect(kinds.filter((kind) => kind === "started").length).toBeLessThanOrEqual(1);
  if (isCommandChecked) return;
  isCommandChecked = true;
  const path = join(home.path, "log.ndjson");
  writeFileSync(path, text);
  expect((await call(["verify", path], { env: home.env })).code).toBe(0);
}

let isCommandChecked = false;
