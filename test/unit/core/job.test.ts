import { expect, test } from "bun:test";
import { canChange, type Job, type JobChange, reduceJob } from "../../../src/core/job.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import type { Outcome } from "../../../src/core/outcome.ts";
import { STATUSES, type Status } from "../../../src/core/reasons.ts";

const QUEUED: Job = Object.freeze({
  id: "1",
  tenant: "acme",
  status: "queued",
  language: "python",
  limits: DEFAULT_LIMITS,
  labels: {},
  placement: null,
  workerId: null,
  createdAt: 1,
  startedAt: null,
  finishedAt: null,
  owner: null,
  outcome: null,
});

const OUTCOME: Outcome = {
  exitCode: 3,
  signal: null,
  reason: "exit",
  limitsHit: [],
  violations: [],
  usage: null,
  durationMs: 1,
  killed: 0,
};

const owner = { instance: "here", epoch: 1 };
const start: JobChange = { type: "start", at: 2, owner, workerId: "w1" };
const finish: JobChange = { type: "finish", at: 3, outcome: OUTCOME };
const withStatus = (status: Status): Job => ({ ...QUEUED, status });

test("canChange() lets queued start and end, running end, and what has ended nothing", () => {
  const allowed = STATUSES.map((status) => [
    status,
    canChange(withStatus(status), start),
    canChange(withStatus(status), finish),
  ]);
  const ended = STATUSES.slice(2).map((status) => [status, false, false]);
  expect(allowed).toEqual([["queued", true, true], ["running", false, true], ...ended]);
});

test("reduceJob() starts and finishes, and leaves the job it was given", () => {
  const running = reduceJob(QUEUED, start);
  const since = { status: "running", startedAt: 2, owner, workerId: "w1" } as const;
  expect(running).toEqual({ ...QUEUED, ...since });
  const ended = reduceJob(running, finish);
  expect(ended).toEqual({ ...running, status: "failed", finishedAt: 3, outcome: OUTCOME });
  expect(QUEUED.status).toBe("queued");
  const cancelled = reduceJob(QUEUED, { ...finish, outcome: { ...OUTCOME, reason: "user" } });
  expect(cancelled).toMatchObject({ status: "cancelled", startedAt: null, owner: null });
});

test("reduceJob() takes a change that is not allowed for a bug", () => {
  for (const status of STATUSES.slice(1)) {
    expect(() => reduceJob(withStatus(status), start)).toThrow("BUG(cprg)");
  }
  for (const status of STATUSES.slice(2)) {
    expect(() => reduceJob(withStatus(status), finish)).toThrow("BUG(cprg)");
  }
});
