import { describe, expect, test } from "bun:test";
import { KILL_TRIES_MAX, killUntil, settledWithin } from "../../../src/sandbox/kill-until.ts";

describe("killUntil()", () => {
  test("kills at once, again until it is gone, and does not give up then", async () => {
    const gone = Promise.withResolvers<void>();
    const seen: (number | string)[] = [];
    const ended = killUntil(gone.promise, {
      kill: (tries) => {
        seen.push(tries);
        if (tries === 2) gone.resolve();
      },
      giveUp: () => seen.push("gave up"),
    });
    expect(seen).toEqual([0]);
    await ended;
    expect(seen).toEqual([0, 1, 2]);
  });

  test("a promise that rejects is gone too", async () => {
    let kills = 0;
    await killUntil(Promise.reject(new Error("lost")), {
      kill: () => {
        kills += 1;
      },
      giveUp: () => expect.unreachable(),
    });
    expect(kills).toBe(1);
  });

  test("gives up once, after a bounded number of kills", async () => {
    const seen = { kills: 0, givenUp: 0 };
    await killUntil(new Promise(() => undefined), {
      kill: () => {
        seen.kills += 1;
      },
      giveUp: () => {
        seen.givenUp += 1;
      },
    });
    expect(seen).toEqual({ kills: KILL_TRIES_MAX, givenUp: 1 });
  }, 60_000);
});

test("settledWithin() ends with the promise or the time", async () => {
  await settledWithin(Promise.resolve(), 2 ** 30);
  await settledWithin(new Promise(() => undefined), 1);
});
