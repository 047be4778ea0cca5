import { expect, test } from "bun:test";
import { nextTurn, OwnTurns, SharedTurns, TurnShare } from "../../../src/core/turn.ts";

/** Longest that the loop goes on when it never gives way. */
const GIVE_UP_MS = 5000;

test("a loop that never waits gives way to the event loop", async () => {
  let isTurn = false;
  setImmediate(() => {
    isTurn = true;
  });
  const share = new TurnShare();
  const endMs = performance.now() + GIVE_UP_MS;
  while (!isTurn && performance.now() < endMs) await share.spend();
  expect(isTurn).toBe(true);
});

test("of those who wait in one queue one has each turn, first come, first served", async () => {
  const turns = new OwnTurns();
  const order: number[] = [];
  const all = [0, 1, 2, 3].map((place) => turns.next().then(() => order.push(place)));
  const seen: number[] = [];
  while (order.length < 4) {
    await nextTurn();
    seen.push(order.length);
  }
  await Promise.all(all);
  expect(order).toEqual([0, 1, 2, 3]);
  // Never two of them between two looks.
  expect(seen.every((count, index) => count - (seen[index - 1] ?? 0) <= 1)).toBe(true);
});

test("queues do not wait for each other", async () => {
  const [busy, other] = [new OwnTurns(), new OwnTurns()];
  let isBusyDone = false;
  const last = Array.from({ length: 50 }, () => busy.next()).at(-1);
  void last?.then(() => {
    isBusyDone = true;
  });
  await other.next();
  expect(isBusyDone).toBe(false);
  await last;
});

/** Keeps the event loop, as work does. */
function work(milliseconds: number): void {
  const endMs = performance.now() + milliseconds;
  while (performance.now() < endMs) {}
}

test("callers share a turn while it has time, and those who come later have one each", async () => {
  const turns = new SharedTurns();
  expect(turns.enter("one")).toBeNull();
  expect(turns.enter("one")).toBeNull();
  work(5);
  const order: number[] = [];
  const later = [0, 1, 2].map((place) => turns.enter("one")?.then(() => order.push(place)));
  expect(later).not.toContain(undefined);
  const seen: number[] = [];
  while (order.length < 3) {
    await nextTurn();
    seen.push(order.length);
  }
  expect(order).toEqual([0, 1, 2]);
  expect(seen.every((count, index) => count - (seen[index - 1] ?? 0) <= 1)).toBe(true);
  await Promise.all(later);
  // A new turn has new time.
  await nextTurn();
  expect(turns.enter("one")).toBeNull();
});

test("a party's burst is not another's wait", async () => {
  const turns = new SharedTurns();
  expect(turns.enter("burst")).toBeNull();
  work(5);
  const order: string[] = [];
  const burst = Array.from({ length: 20 }, (_, place) =>
    turns.enter("burst")?.then(() => order.push(`burst ${place}`)),
  );
  const other = turns.enter("other")?.then(() => order.push("other"));
  await other;
  expect(order).toEqual(["burst 0", "other"]);
  await Promise.all(burst);
  expect(order.at(-1)).toBe("burst 19");
});

test("of one party nobody overtakes those who wait", async () => {
  const turns = new SharedTurns();
  expect(turns.enter("one")).toBeNull();
  work(5);
  const order: string[] = [];
  const first = turns.enter("one")?.then(() => order.push("first"));
  const second = turns.enter("one")?.then(() => order.push("second"));
  while (order.length === 0) await nextTurn();
  const last = turns.enter("one")?.then(() => order.push("last"));
  await Promise.all([first, second, last]);
  expect(order).toEqual(["first", "second", "last"]);
});
