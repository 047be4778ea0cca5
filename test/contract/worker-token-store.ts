// What every WorkerTokenStore must do. Run against each store.

import { describe, expect, test } from "bun:test";
import { newId } from "../../src/core/ids.ts";
import type { StoredWorkerToken } from "../../src/core/worker-token.ts";
import { WORKER_TOKENS_MAX } from "../../src/store/contract.ts";
import { checkTokenInsert } from "../../src/store/worker-token-rules.ts";
import { failure, NOON } from "../store/samples.ts";
import type { StoreKind } from "./store-harness.ts";

function sampleToken(change: Partial<StoredWorkerToken> = {}): StoredWorkerToken {
  return {
    id: newId(),
    name: "rack é",
    workerId: "rack-*",
    labels: { arch: "x86_64" },
    tenants: null,
    createdAt: NOON,
    expiresAt: NOON + 1000,
    revokedAt: null,
    ...change,
  };
}

/** Registers the suite for one kind of store. */
export function workerTokenStoreContract({ name, open }: StoreKind): void {
  describe(`WorkerTokenStore of ${name}`, () => {
    test("keeps every field, and lists oldest first", async () => {
      await using store = await open();
      const young = sampleToken({ createdAt: NOON + 1, labels: {}, tenants: ["a", "b"] });
      const old = sampleToken({ revokedAt: NOON + 3 });
      for (const token of [young, old]) await store.workerTokens.insert(token);
      expect(await store.workerTokens.list()).toEqual([old, young]);
    });

    test("refuses an id that is taken", async () => {
      await using store = await open();
      const token = sampleToken();
      await store.workerTokens.insert(token);
      const again = store.workerTokens.insert(sampleToken({ id: token.id, name: "other" }));
      expect((await failure(again)).code).toBe("already_exists");
      expect(await store.workerTokens.list()).toEqual([token]);
    });

    test("revokes once: the first revocation stands", async () => {
      await using store = await open();
      const [token, other] = [sampleToken(), sampleToken({ createdAt: NOON + 1 })];
      for (const each of [token, other]) await store.workerTokens.insert(each);
      const revoked = { ...token, revokedAt: NOON + 5 };
      expect(await store.workerTokens.revoke(token.id, NOON + 5)).toEqual(revoked);
      expect(await store.workerTokens.revoke(token.id, NOON + 9)).toEqual(revoked);
      expect(await store.workerTokens.list()).toEqual([revoked, other]);
      expect(await store.workerTokens.revoke(newId(), NOON)).toBeNull();
    });

    test("removes what has expired, with its revocation, and nothing else", async () => {
      await using store = await open();
      const gone = sampleToken({ expiresAt: NOON - 1, revokedAt: NOON - 9 });
      const stays = sampleToken({ expiresAt: NOON });
      for (const each of [gone, stays]) await store.workerTokens.insert(each);
      expect(await store.workerTokens.removeExpired(NOON)).toBe(1);
      expect(await store.workerTokens.removeExpired(NOON)).toBe(0);
      expect(await store.workerTokens.list()).toEqual([stays]);
    });

    test("has a bound", () => {
      const insert = (count: number) => () =>
        checkTokenInsert(sampleToken(), { isTaken: false, count });
      expect(insert(WORKER_TOKENS_MAX - 1)).not.toThrow();
      expect(insert(WORKER_TOKENS_MAX)).toThrow(/another token/);
    });
  });
}
