import { expect, test } from "bun:test";
import { LeaseRequests } from "../../../src/control-plane/lease-requests.ts";
import type { WorkerSlot } from "../../../src/control-plane/registered-worker.ts";
import { CprgError } from "../../../src/core/errors.ts";

function request(id: string, createdAt = 0, tenant = "a") {
  return { id, tenant, labels: {}, createdAt };
}

function slot() {
  const seen = { cancelled: 0 };
  const one: WorkerSlot = {
    workerId: "w",
    claim: async () => {
      throw new Error("not here");
    },
    cancel: () => {
      seen.cancelled += 1;
    },
  };
  return { one, seen };
}

test("they wait among the tasks by age, until each is given a slot", async () => {
  const leases = new LeaseRequests(() => undefined);
  const tasks = [request("t1", 1), request("t3", 3)];
  expect(leases.among(tasks)).toBe(tasks);
  const asked = leases.ask(request("l2", 2));
  const ids = () => leases.among(tasks).map(({ id }) => id);
  expect(ids()).toEqual(["t1", "l2", "t3"]);
  const { one } = slot();
  leases.give("l2", one);
  expect(ids()).toEqual(["t1", "t3"]);
  expect((await asked).slot).toBe(one);
});

test("one that is held counts as its tenant's, until it is released, once", async () => {
  let released = 0;
  const leases = new LeaseRequests(() => {
    released += 1;
  });
  const asked = [leases.ask(request("x", 0, "a")), leases.ask(request("y", 0, "b"))];
  expect(leases.holders).toEqual([]);
  const { one, seen } = slot();
  for (const id of ["x", "y"]) leases.give(id, one);
  expect(leases.holders).toEqual(["a", "b"]);
  const [first] = await Promise.all(asked);
  first?.release();
  first?.release();
  expect([leases.holders, released, seen.cancelled]).toEqual([["b"], 1, 2]);
});

test("one that leaves waits no more, and a slot for it is given back", async () => {
  const leases = new LeaseRequests(() => undefined);
  const stop = new AbortController();
  const asked = leases.ask(request("x"), stop.signal);
  const why = new Error("gone");
  stop.abort(why);
  await expect(asked).rejects.toBe(why);
  const { one, seen } = slot();
  leases.give("x", one);
  expect([leases.holders, seen.cancelled]).toEqual([[], 1]);
  await expect(leases.ask(request("x"), AbortSignal.abort(why))).rejects.toBe(why);
  // After its slot, the signal is the lease's user's business.
  const later = new AbortController();
  const given = leases.ask(request("z"), later.signal);
  leases.give("z", slot().one);
  later.abort(why);
  expect((await given).slot.workerId).toBe("w");
});

test("all are refused at the end, and none waits twice", async () => {
  const leases = new LeaseRequests(() => undefined);
  const asked = leases.ask(request("x"));
  await expect(leases.ask(request("x"))).rejects.toMatchObject({ code: "already_exists" });
  leases.refuse(new CprgError("unavailable", "stops", { reason: "SHUTDOWN" }));
  await expect(asked).rejects.toMatchObject({ reason: "SHUTDOWN" });
  expect(leases.among([])).toEqual([]);
});
