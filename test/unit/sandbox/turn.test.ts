import { expect, test } from "bun:test";
import { nextTurn, OwnTurns, TurnShare } from "../../../src/sandbox/turn.ts";

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
