import { expect, test } from "bun:test";
import { TurnShare } from "../../../src/sandbox/turn.ts";

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
