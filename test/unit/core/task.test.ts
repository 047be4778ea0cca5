// What may happen to a task. Its life in a store is in the contract suite.

import { expect, test } from "bun:test";
import {
  CLAIM_ATTEMPTS_MAX,
  CLAIM_EPOCHS_MAX,
  reduceTask,
  type Task,
  type TaskChange,
} from "../../../src/core/task.ts";
import { sampleTask } from "../../store/samples.ts";

const claim = { type: "claim", at: 1, workerId: "w" } as const;

function unclaim(epoch: number, isUncounted = false): TaskChange {
  return { type: "unclaim", at: 2, epoch, reason: "claim_failed", error: "no", isUncounted };
}

test("a claim that nobody tried costs no attempt, and has an epoch of its own", () => {
  const task = sampleTask();
  const claimed = reduceTask(task, claim);
  const back = reduceTask(claimed, unclaim(1, true));
  expect(back).toEqual({ ...task, epoch: 1 });
  expect(reduceTask(back, claim)).toMatchObject({ attempts: 1, epoch: 2 });
});

test("claims that nobody tried are bounded: beyond it each counts", () => {
  let task: Task = sampleTask();
  let claims = 0;
  while (task.status === "queued" && claims < 2 * CLAIM_EPOCHS_MAX) {
    const claimed = reduceTask(task, claim);
    task = reduceTask(claimed, unclaim(claimed.epoch, true));
    claims += 1;
  }
  expect(task).toMatchObject({ status: "failed", reason: "claim_failed" });
  expect(claims).toBe(CLAIM_EPOCHS_MAX + CLAIM_ATTEMPTS_MAX - 1);
});

test("a claim of an old epoch changes nothing, whatever it says", () => {
  const second = reduceTask(reduceTask(reduceTask(sampleTask(), claim), unclaim(1)), claim);
  const end = { status: "succeeded", reason: "exit" } as const;
  for (const change of [
    { type: "run", at: 3, epoch: 1 },
    { type: "finish", at: 3, epoch: 1, end },
    unclaim(1),
    unclaim(3),
  ] as const) {
    expect(() => reduceTask(second, change)).toThrow(
      expect.objectContaining({ code: "aborted", reason: "STALE_EPOCH" }),
    );
  }
});
