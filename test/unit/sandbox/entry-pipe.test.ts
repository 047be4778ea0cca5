import { expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { EntryPart, EntrySink } from "../../../src/provider/contract.ts";
import { pulledEntries } from "../../../src/sandbox/entry-pipe.ts";

const head = { type: "file", path: "f", mode: 0o644, size: 3 } as const;

test("hands on every part in order, one at a time", async () => {
  let given = 0;
  const parts: EntryPart[] = [];
  const pulled = pulledEntries(async (sink) => {
    await sink.entry(head);
    for (const byte of [1, 2, 3]) {
      await sink.content(Uint8Array.of(byte));
      given = byte;
    }
  });
  for await (const part of pulled) {
    parts.push(part);
    // What has been taken was asked for: never more than one ahead.
    expect(given).toBeLessThanOrEqual(parts.length);
    await nextTurn();
  }
  expect(parts).toEqual([head, ...[1, 2, 3].map((byte) => Uint8Array.of(byte))]);
});

test("a failure comes after what came before it", async () => {
  const pulled = pulledEntries(async (sink) => {
    await sink.entry(head);
    throw new Error("broken");
  });
  expect((await pulled.next()).value).toEqual(head);
  await expect(pulled.next()).rejects.toThrow("broken");
});

test("whoever stops reading ends the other side, and waits for its end", async () => {
  let isEnded = false;
  const endless = async (sink: EntrySink, signal: AbortSignal): Promise<void> => {
    try {
      while (!signal.aborted) await sink.content(Uint8Array.of(1));
    } finally {
      isEnded = true;
    }
  };
  const pulled = pulledEntries(endless);
  await pulled.next();
  await pulled.return(undefined);
  expect(isEnded).toBe(true);
});
