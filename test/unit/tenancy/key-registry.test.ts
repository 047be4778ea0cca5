import { describe, expect, test } from "bun:test";
import { memoryKeys } from "../../../src/store/memory-keys.ts";
import { KeyRegistry, type KeyRequest } from "../../../src/tenancy/key-registry.ts";
import { KeyRing } from "../../../src/tenancy/key-ring.ts";

async function useRegistry() {
  const clock = { time: 1_000_000, now: () => clock.time, monotonicMs: () => clock.time };
  const store = memoryKeys();
  const open = async () => {
    const ring = new KeyRing([], clock);
    return { ring, registry: await KeyRegistry.open({ store, ring, clock }) };
  };
  return { clock, store, open, ...(await open()) };
}

const tenantKey: KeyRequest = { tenant: "a", role: "tenant" };

describe("KeyRegistry", () => {
  test("makes keys that work, and stores only their hash", async () => {
    const { registry, ring, store } = await useRegistry();
    const ceilings = { pids: 9 };
    const request = { ...tenantKey, name: "ci", ceilings, ratePerMin: 7 };
    const { key, stored } = await registry.create(request);
    expect(key).toMatch(/^cprg_[0-9a-f]{64}$/);
    expect(key).toStartWith(stored.prefix);
    expect(stored.prefix).toHaveLength(9);
    expect(ring.authenticate(key)).toMatchObject({
      keyId: stored.id,
      tenant: "a",
      role: "tenant",
      ceilings,
      ratePerMin: 7,
    });
    expect(JSON.stringify(await store.list())).not.toContain(key.slice(10));
  });

  test("knows after a restart what was made before it", async () => {
    const { registry, open } = await useRegistry();
    const kept = await registry.create({ ...tenantKey, ratePerMin: 9 });
    const revoked = await registry.create(tenantKey);
    await registry.revoke(revoked.stored.id);
    const again = await open();
    expect(again.ring.authenticate(kept.key)?.ratePerMin).toBe(9);
    expect(again.ring.authenticate(revoked.key)).toBeNull();
    expect(again.registry.list()).toHaveLength(2);
    expect(again.registry.aliveCount).toBe(1);
  });

  test("revokes at once, and tells what runs under the key", async () => {
    const { registry, ring } = await useRegistry();
    const { key, stored } = await registry.create(tenantKey);
    const signal = ring.authenticate(key)?.revoked;
    expect(signal?.aborted).toBe(false);
    expect((await registry.revoke(stored.id)).revokedAt).toBe(1_000_000);
    expect(signal?.aborted).toBe(true);
    expect(ring.authenticate(key)).toBeNull();
  });

  test("a store that fails keeps no revoked key alive", async () => {
    const { registry, ring, store } = await useRegistry();
    const { key, stored } = await registry.create(tenantKey);
    store.change = () => Promise.reject(new Error("disk full"));
    await expect(registry.revoke(stored.id)).rejects.toThrow("disk full");
    expect(ring.authenticate(key)).toBeNull();
  });

  test("keys end when they are to end", async () => {
    const { registry, ring, clock } = await useRegistry();
    const { key } = await registry.create({ ...tenantKey, expiresInSeconds: 10 });
    const signal = ring.authenticate(key)?.revoked;
    clock.time += 9999;
    expect(ring.authenticate(key)).not.toBeNull();
    clock.time += 1;
    expect(ring.authenticate(key)).toBeNull();
    expect(signal?.aborted).toBe(true);
  });

  test("rotates with an overlap in which both work", async () => {
    const { registry, ring, clock } = await useRegistry();
    const old = await registry.create({ ...tenantKey, name: "ci", ratePerMin: 5 });
    const made = await registry.rotate(old.stored.id, 60);
    expect(made.stored).toMatchObject({ tenant: "a", name: "ci", ratePerMin: 5, expiresAt: null });
    expect(ring.authenticate(old.key)).not.toBeNull();
    clock.time += 60_000;
    expect(ring.authenticate(old.key)).toBeNull();
    expect(ring.authenticate(made.key)).not.toBeNull();
    const next = await registry.rotate(made.stored.id, 0);
    expect(ring.authenticate(made.key)).toBeNull();
    expect(ring.authenticate(next.key)).not.toBeNull();
    await expect(registry.rotate(made.stored.id, 0)).rejects.toMatchObject({ reason: "KEY_ENDED" });
  });

  test("rotates once, however often it is asked, and the successor has the whole life", async () => {
    const { registry, clock } = await useRegistry();
    const { stored } = await registry.create({ ...tenantKey, expiresInSeconds: 1000 });
    clock.time += 400_000;
    const asked = Array.from({ length: 8 }, () =>
      registry.rotate(stored.id, 60).catch((error: { reason: string }) => error.reason),
    );
    const answers = await Promise.all(asked);
    const made = answers.filter((answer) => typeof answer !== "string");
    expect(made).toHaveLength(1);
    expect(answers.filter((answer) => answer === "KEY_ROTATED")).toHaveLength(7);
    expect(made[0]).toMatchObject({ stored: { expiresAt: clock.time + 1_000_000 } });
    expect(registry.get(stored.id)).toMatchObject({ rotatedAt: clock.time });
    await expect(registry.rotate(stored.id, 60)).rejects.toMatchObject({ reason: "KEY_ROTATED" });
  });

  test("a short overlap shortens nothing but the old key", async () => {
    const { registry } = await useRegistry();
    const { stored } = await registry.create(tenantKey);
    const second = await registry.rotate(stored.id, 0.3);
    const third = await registry.rotate(second.stored.id, 3);
    expect([second.stored.expiresAt, third.stored.expiresAt]).toEqual([null, null]);
  });

  test("forgets keys that ended before a time, and no others", async () => {
    const { registry, store, clock } = await useRegistry();
    const ended = await registry.create({ ...tenantKey, expiresInSeconds: 1 });
    const revoked = await registry.create(tenantKey);
    const stays = await registry.create({ ...tenantKey, expiresInSeconds: 100 });
    await registry.create(tenantKey);
    clock.time += 50_000;
    await registry.revoke(revoked.stored.id);
    await registry.forgetEnded(clock.time);
    const ids = () => registry.list().map(({ id }) => id);
    expect(ids()).not.toContain(ended.stored.id);
    expect(ids()).toContain(revoked.stored.id);
    await registry.forgetEnded(clock.time + 1);
    expect(ids()).not.toContain(revoked.stored.id);
    expect(ids()).toContain(stays.stored.id);
    expect((await store.list()).map(({ id }) => id)).toEqual(ids());
  });

  test("stores uses", async () => {
    const { registry, store, clock } = await useRegistry();
    const { stored } = await registry.create(tenantKey);
    clock.time += 5;
    registry.noteUse(stored.id);
    registry.noteUse("config-1");
    expect(registry.get(stored.id).lastUsedAt).toBe(1_000_005);
    await registry.close();
    expect((await store.list())[0]?.lastUsedAt).toBe(1_000_005);
  });

  test.each<[string, Partial<KeyRequest>]>([
    ["tenant", { tenant: "a/b" }],
    ["name", { name: "x".repeat(65) }],
    ["name", { name: "a\u202eb" }],
    ["rate_per_min", { ratePerMin: 0 }],
    ["rate_per_min", { ratePerMin: 1.5 }],
    ["rate_per_min", { ratePerMin: 1e9 }],
    ["expires_in_seconds", { expiresInSeconds: 0 }],
    ["expires_in_seconds", { expiresInSeconds: Number.NaN }],
  ])("refuses a bad %s", async (field, change) => {
    const { registry } = await useRegistry();
    await expect(registry.create({ ...tenantKey, ...change })).rejects.toMatchObject({ field });
    expect(registry.list()).toEqual([]);
  });

  test("says nothing of an id that may be a key", async () => {
    const { registry } = await useRegistry();
    const { key } = await registry.create(tenantKey);
    const error = await registry.revoke(key).catch(String);
    expect(error).not.toContain(key.slice(5));
  });
});
