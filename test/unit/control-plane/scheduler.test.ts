import { describe, expect, test } from "bun:test";
import {
  type Candidate,
  nextAssignment,
  type SchedulerState,
  suits,
  type Waiting,
  whyWaiting,
} from "../../../src/control-plane/scheduler.ts";

function worker(id: string, change: Partial<Candidate> = {}): Candidate {
  return { id, labels: {}, tenants: null, freeSlots: 1, isClosed: false, ...change };
}

function task(id: string, change: Partial<Waiting> = {}): Waiting {
  return { id, tenant: "a", labels: {}, createdAt: 0, ...change };
}

function state(change: Partial<SchedulerState>): SchedulerState {
  return { workers: [], waiting: [], shares: [], tenantLimit: 10, ...change };
}

function placed(change: Partial<SchedulerState>): string | null {
  const found = nextAssignment(state(change));
  return found === null ? null : `${found.taskId}@${found.workerId}`;
}

describe("nextAssignment()", () => {
  test("gives the oldest task the worker with the most free slots", () => {
    const workers = [worker("w1"), worker("w2", { freeSlots: 3 }), worker("w3", { freeSlots: 3 })];
    expect(placed({ workers, waiting: [task("t1"), task("t2")] })).toBe("t1@w2");
  });

  test("places nothing on workers that are full, closed, another tenant's or without the label", () => {
    const workers = [
      worker("full", { freeSlots: 0 }),
      worker("closed", { isClosed: true }),
      worker("foreign", { tenants: ["b"] }),
      worker("plain"),
    ];
    const waiting = [task("t1", { labels: { gpu: "1" } })];
    expect(placed({ workers, waiting })).toBeNull();
    workers.push(worker("own", { tenants: ["b", "a"], labels: { gpu: "1", os: "linux" } }));
    expect(placed({ workers, waiting })).toBe("t1@own");
  });

  test("what needs a capability goes to a worker that lists it", () => {
    const workers = [worker("plain", { freeSlots: 9 }), worker("able")];
    const able = { ...workers[1], capabilities: new Set(["job.Run", "x"]) } as Candidate;
    const waiting = [task("t1", { needs: ["job.Run"] }), task("t2")];
    expect(placed({ workers, waiting })).toBe("t2@plain");
    expect(placed({ workers: [workers[0] as Candidate, able], waiting })).toBe("t1@able");
    const both = task("t3", { needs: ["job.Run", "y"] });
    expect(suits(able, both)).toBe(false);
    expect(whyWaiting(both, state({ workers: [able] }))).toBe("no_worker_matches");
    // The kind of one that nothing suits is not taken for the other's.
    const twins = [task("t4", { needs: ["y"] }), task("t5", { needs: ["x"] })];
    expect(placed({ workers: [able], waiting: twins })).toBe("t5@able");
  });

  test("a worker that a claim of the task failed on is taken only where no other is free", () => {
    const workers = [worker("w1", { freeSlots: 9 }), worker("w2")];
    const waiting = [task("t1", { avoids: ["w1"] })];
    expect(placed({ workers, waiting })).toBe("t1@w2");
    expect(placed({ workers: workers.slice(0, 1), waiting })).toBe("t1@w1");
  });

  test("a task that nothing suits holds up nobody, of its tenant or another", () => {
    const stuck = Array.from({ length: 1000 }, (_, index) =>
      task(`s${index}`, { labels: { gpu: "1" } }),
    );
    const waiting = [...stuck, task("t1")];
    expect(placed({ workers: [worker("w")], waiting })).toBe("t1@w");
  });

  test("the tenant with the fewest claims goes first, then the one served longest ago", () => {
    const waiting = [task("a1"), task("b1", { tenant: "b" }), task("c1", { tenant: "c" })];
    const workers = [worker("w")];
    const shares = [
      { tenant: "a", share: 2, turn: 1 },
      { tenant: "b", share: 1, turn: 3 },
      { tenant: "c", share: 1, turn: 2 },
    ];
    expect(placed({ workers, waiting, shares })).toBe("c1@w");
    expect(placed({ workers, waiting, shares: shares.slice(0, 2) })).toBe("c1@w");
    expect(placed({ workers, waiting, shares, tenantLimit: 1 })).toBeNull();
  });
});

test("whyWaiting() names what would have to change", () => {
  const waiting = task("t", { labels: { os: "linux" } });
  const linux = { labels: { os: "linux" } };
  const why = (change: Partial<SchedulerState>) => whyWaiting(waiting, state(change));
  expect(why({})).toBe("no_worker_matches");
  expect(why({ workers: [worker("w"), worker("x", { ...linux, tenants: ["b"] })] })).toBe(
    "no_worker_matches",
  );
  expect(why({ workers: [worker("w", { ...linux, freeSlots: 0 })] })).toBe("all_busy");
  expect(why({ workers: [worker("w", { ...linux, isClosed: true })] })).toBe("all_busy");
  const shares = [{ tenant: "a", share: 10, turn: 1 }];
  expect(why({ workers: [worker("w", linux)], shares })).toBe("tenant_limit");
  expect(why({ workers: [worker("w", linux)] })).toBeNull();
});

test("a label is its own, not one that every object has", () => {
  const labels = JSON.parse('{"constructor":"x"}');
  expect(suits(worker("w"), task("t", { labels }))).toBe(false);
  expect(suits(worker("w", { labels }), task("t", { labels }))).toBe(true);
});
