// What every KeyStore must do, and what a JobStore says of tenants. Run against each store.

import { describe, expect, test } from "bun:test";
import { newId } from "../../src/core/ids.ts";
import type { StoredKey } from "../../src/core/key.ts";
import { STORED_KEYS_MAX, type Store } from "../../src/store/contract.ts";
import { checkKeyInsert } from "../../src/store/key-rules.ts";
import {
  allLines,
  failure,
  NOON,
  sampleJob,
  sampleOutcome,
  sampleSpec,
  stdout,
} from "../store/samples.ts";
import { REOPENING_TIMEOUT_MS, type StoreKind } from "./store-harness.ts";

/** Registers the suite for one kind of store. */
export function keyStoreContract(kind: StoreKind): void {
  describe(`KeyStore of ${kind.name}`, () => describeKeys(kind));
  describe(`tenants of ${kind.name}`, () => {
    describeTurns(kind);
    describeStored(kind);
  });
}

function sampleKey(change: Partial<StoredKey> = {}): StoredKey {
  return {
    id: newId(),
    tenant: "a",
    role: "tenant",
    name: "ci é",
    prefix: "cprg_abcd",
    hash: crypto.getRandomValues(new Uint8Array(32)),
    ceilings: null,
    ratePerMin: null,
    createdAt: NOON,
    lastUsedAt: null,
    lifeMs: null,
    expiresAt: null,
    rotatedAt: null,
    revokedAt: null,
    ...change,
  };
}

function describeKeys({ open }: StoreKind): void {
  test("keeps every field, and lists oldest first", async () => {
    await using store = await open();
    const young = sampleKey({ createdAt: NOON + 1, role: "admin", ratePerMin: 7 });
    const old = sampleKey({ ceilings: { pids: 3 }, lifeMs: 9, expiresAt: NOON + 9 });
    await store.keys.insert(young);
    await store.keys.insert(old);
    expect(await store.keys.list()).toEqual([old, young]);
  });

  test("refuses an id or hash that is taken", async () => {
    await using store = await open();
    const key = sampleKey();
    await store.keys.insert(key);
    for (const other of [sampleKey({ id: key.id }), sampleKey({ hash: key.hash })]) {
      expect((await failure(store.keys.insert(other))).code).toBe("already_exists");
    }
    expect(await store.keys.list()).toEqual([key]);
  });

  test("changes only towards the end, and uses only forwards", async () => {
    await using store = await open();
    const key = sampleKey();
    await store.keys.insert(key);
    const first = { lastUsedAt: NOON + 5, expiresAt: NOON + 50, revokedAt: NOON + 40 };
    expect(await store.keys.change(key.id, first)).toEqual({ ...key, ...first });
    const back = { lastUsedAt: NOON + 1, expiresAt: NOON + 60, revokedAt: NOON + 41 };
    expect(await store.keys.change(key.id, back)).toEqual({ ...key, ...first });
    expect(await store.keys.change(key.id, {})).toEqual({ ...key, ...first });
    expect(await store.keys.list()).toEqual([{ ...key, ...first }]);
    expect(await store.keys.change(newId(), first)).toBeNull();
  });

  test("removes keys, and takes no notice of those that are not there", async () => {
    await using store = await open();
    const [gone, stays] = [sampleKey(), sampleKey({ createdAt: NOON + 1 })];
    for (const key of [gone, stays]) await store.keys.insert(key);
    await store.keys.remove([gone.id, "nothing"]);
    await store.keys.remove([]);
    expect(await store.keys.list()).toEqual([stays]);
    await store.keys.insert(gone);
  });

  test("has a bound", () => {
    const insert = (count: number) => () => checkKeyInsert(sampleKey(), { isTaken: false, count });
    expect(insert(STORED_KEYS_MAX - 1)).not.toThrow();
    expect(insert(STORED_KEYS_MAX)).toThrow(/another key/);
  });
}

async function insert(store: Store, tenant: string, createdAt: number): Promise<string> {
  const job = sampleJob({ tenant, createdAt });
  await store.jobs.insert(job, sampleSpec());
  return job.id;
}

function describeTurns({ open }: StoreKind): void {
  test(
    "next() goes by share, then by turn, then by age",
    async () => {
      await using store = await open();
      await insert(store, "a", NOON);
      await insert(store, "b", NOON + 1);
      await insert(store, "c", NOON + 2);
      const next = async (shares: [string, number, number][], busy: string[] = []) =>
        (
          await store.jobs.next(
            busy,
            shares.map(([tenant, share, turn]) => ({ tenant, share, turn })),
          )
        )?.tenant;
      expect(await next([])).toBe("a");
      expect(await next([["a", 1, 0]])).toBe("b");
      expect(
        await next([
          ["a", 0, 3],
          ["b", 0, 2],
          ["c", 0, 4],
        ]),
      ).toBe("b");
      expect(
        await next([
          ["a", 2, 1],
          ["b", 2, 2],
          ["c", 1, 9],
        ]),
      ).toBe("c");
      expect(
        await next(
          [
            ["a", 2, 1],
            ["b", 2, 2],
            ["c", 1, 9],
          ],
          ["c"],
        ),
      ).toBe("a");
      expect(await next([["elsewhere", 9, 9]])).toBe("a");
    },
    REOPENING_TIMEOUT_MS,
  );
}

function describeStored({ open }: StoreKind): void {
  test(
    "storedBytes() counts lines and specs as they are kept",
    async () => {
      await using store = await open();
      expect(await store.storedBytes("a")).toBe(0);
      const kept = async (id: string) => {
        const lines = await allLines(store.events, `job:${id}`);
        const spec = Buffer.byteLength(JSON.stringify(await store.jobs.spec(id)));
        return lines.reduce((sum, { line }) => sum + Buffer.byteLength(line), spec);
      };
      const id = await insert(store, "a", NOON);
      const large = sampleJob({ tenant: "a" });
      const files = [{ path: "é", base64: "A".repeat(10_000), mode: 0o644 }];
      await store.jobs.insert(large, sampleSpec({ files }));
      await insert(store, "b", NOON);
      const before = await store.storedBytes("a");
      expect(before).toBe((await kept(id)) + (await kept(large.id)));
      expect(before).toBeGreaterThan(10_000);

      const started = await store.jobs.start(large.id, "here", NOON + 1);
      await store.events.append(`job:${large.id}`, [stdout("é".repeat(1000))]);
      expect(await store.storedBytes("a")).toBe((await kept(id)) + (await kept(large.id)));
      await store.jobs.finish(large.id, started?.owner ?? null, sampleOutcome(), NOON + 2);
      const after = await store.storedBytes("a");
      expect(after).toBe((await kept(id)) + (await kept(large.id)));
      expect(after).toBeLessThan(before);
    },
    REOPENING_TIMEOUT_MS,
  );
}
