// The refusal table of PROTOCOL.md section 8, row by row, and ttl.

import { expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { type ClaimKey, ClaimTable } from "../../../src/worker/claim-table.ts";

const t1: ClaimKey = { taskId: "t1", epoch: 7 };

function refused(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (CprgError.is(error)) return `${error.code} ${error.reason ?? error.field}`;
    throw error;
  }
  return "served";
}

function held(slots = 1): ClaimTable {
  const table = new ClaimTable(slots);
  table.begin(t1, 0);
  table.opened(t1, 0);
  return table;
}

test("a call without a claim is the only held one's", () => {
  expect(held().find(null)).toEqual(t1);
  expect(refused(() => new ClaimTable(1).find(null))).toBe("failed_precondition NOT_CLAIMED");
  const two = held(2);
  two.begin({ taskId: "t2", epoch: 1 }, 0);
  // One that opens serves nothing yet, and is none that could be meant.
  expect(two.find(null)).toEqual(t1);
  two.opened({ taskId: "t2", epoch: 1 }, 0);
  expect(refused(() => two.find(null))).toBe("failed_precondition NOT_CLAIMED");
});

test("a call with a claim needs that task at that epoch, held", () => {
  const table = held();
  expect(table.find(t1)).toEqual(t1);
  expect(refused(() => table.find({ taskId: "t2", epoch: 7 }))).toBe(
    "failed_precondition NOT_CLAIMED",
  );
  for (const epoch of [6, 8]) {
    expect(refused(() => table.find({ taskId: "t1", epoch }))).toBe("aborted STALE_EPOCH");
  }
  expect(table.staleRefused).toBe(2);
  table.ending(t1);
  expect(refused(() => table.find(t1))).toBe("failed_precondition NOT_CLAIMED");
});

test("a claim needs a free slot, or a higher epoch of a task that is held", () => {
  const table = held();
  expect(refused(() => table.begin({ taskId: "t2", epoch: 1 }, 0))).toBe(
    "already_exists ALREADY_CLAIMED",
  );
  for (const epoch of [6, 7]) {
    expect(refused(() => table.begin({ taskId: "t1", epoch }, 0))).toBe(
      "already_exists ALREADY_CLAIMED",
    );
  }
  const next = { taskId: "t1", epoch: 8 };
  expect(table.begin(next, 0)).toEqual({ superseded: t1 });
  expect(table.phaseOf(t1)).toBe("ending");
  expect(table.phaseOf(next)).toBe("waiting");
  expect(refused(() => table.begin(next, 0))).toBe("already_exists ALREADY_CLAIMED");
  table.ended(t1);
  expect(table.phaseOf(next)).toBe("opening");
  expect(table.opened(next, 0)).toBe(true);
  expect(table.held()).toEqual([next]);
});

test("of two that wait for the same task the higher one opens", () => {
  const table = held();
  table.begin({ taskId: "t1", epoch: 8 }, 0);
  table.begin({ taskId: "t1", epoch: 9 }, 0);
  table.ended(t1);
  expect(table.phaseOf({ taskId: "t1", epoch: 8 })).toBe(null);
  expect(table.phaseOf({ taskId: "t1", epoch: 9 })).toBe("opening");
});

test("a claim that was ended while it opened does not come to be held", () => {
  const table = new ClaimTable(1);
  table.begin(t1, 0);
  table.ending(t1);
  expect(table.opened(t1, 0)).toBe(false);
  expect(table.isEmpty).toBe(false);
  table.ended(t1);
  expect(table.isEmpty).toBe(true);
});

test("releasing what is not held is as good as done, but not with a lower epoch", () => {
  const table = held();
  expect(table.findReleased(null)).toEqual(t1);
  expect(table.findReleased(t1)).toEqual(t1);
  expect(table.findReleased({ taskId: "t2", epoch: 1 })).toBe(null);
  expect(table.findReleased({ taskId: "t1", epoch: 8 })).toBe(null);
  expect(refused(() => table.findReleased({ taskId: "t1", epoch: 6 }))).toBe("aborted STALE_EPOCH");
  expect(refused(() => new ClaimTable(1).findReleased(null))).toBe(
    "failed_precondition NOT_CLAIMED",
  );
});

test("one that waits can be released before it opens", () => {
  const table = held();
  const next = { taskId: "t1", epoch: 8 };
  table.begin(next, 0);
  expect(table.findReleased(next)).toEqual(next);
  table.ending(next);
  table.ended(t1);
  expect(table.isEmpty).toBe(true);
});

test("draining takes no claim and keeps those there are", () => {
  const table = held(2);
  table.drain();
  expect(refused(() => table.begin({ taskId: "t2", epoch: 1 }, 0))).toBe("unavailable DRAINING");
  expect(table.find(t1)).toEqual(t1);
});

test("ids and epochs have bounds", () => {
  const table = new ClaimTable(1);
  for (const taskId of ["", "a/b", "a b", "x".repeat(129), "ä", "a\n"]) {
    expect(refused(() => table.begin({ taskId, epoch: 1 }, 0))).toBe("invalid_argument task_id");
  }
  for (const epoch of [0, -1, 1.5, 2 ** 53, Number.NaN]) {
    expect(refused(() => table.begin({ taskId: "t", epoch }, 0))).toBe("invalid_argument epoch");
  }
  expect(table.isEmpty).toBe(true);
});

test("a claim expires when nobody renewed it for its ttl, counted from when it was held", () => {
  const table = new ClaimTable(2);
  const t2 = { taskId: "t2", epoch: 1 };
  table.begin(t1, 1000);
  table.begin(t2, 0);
  expect(table.nextExpiryMs).toBe(Number.POSITIVE_INFINITY);
  table.opened(t1, 500);
  table.opened(t2, 500);
  expect(table.nextExpiryMs).toBe(1500);
  table.renew(t1, 900);
  // An answer to an older heartbeat takes nothing back.
  table.renew(t1, 600);
  table.renew({ taskId: "t1", epoch: 8 }, 5000);
  expect(table.expired(1899)).toEqual([]);
  expect(table.expired(1900)).toEqual([t1]);
  table.ending(t1);
  expect(table.expired(9999)).toEqual([]);
});
