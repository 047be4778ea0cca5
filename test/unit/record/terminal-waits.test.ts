import { describe, expect, test } from "bun:test";
import { TerminalWaits } from "../../../src/record/terminal-waits.ts";

describe("TerminalWaits", () => {
  test("wakes those of one job, and forgets a wait that is closed", async () => {
    const waits = new TerminalWaits();
    {
      using one = waits.open("a", { waitMs: 60_000 });
      using two = waits.open("a", { waitMs: 60_000 });
      using other = waits.open("b", { waitMs: 60_000 });
      expect(waits.size).toBe(3);
      waits.wake("a");
      await Promise.all([one.ended, two.ended]);
      expect(Bun.peek.status(other.ended)).toBe("pending");
    }
    expect(waits.size).toBe(0);
    waits.wake("a");
  });

  test("ends with its time, or its signal, also one that was aborted before", async () => {
    const waits = new TerminalWaits();
    using timed = waits.open("a", { waitMs: 0 });
    await timed.ended;
    const gone = new AbortController();
    using waiting = waits.open("a", { waitMs: 60_000, signal: gone.signal });
    gone.abort();
    await waiting.ended;
    using late = waits.open("a", { waitMs: 60_000, signal: gone.signal });
    await late.ended;
  });
});
