// What every SandboxStore and ExecStore must do. Run by sandbox-store.test.ts against each store.

import { describe, expect, test } from "bun:test";
import { toHex } from "../../src/core/chain.ts";
import type { ExecRecord } from "../../src/core/exec.ts";
import { newId } from "../../src/core/ids.ts";
import type { Store } from "../../src/store/contract.ts";
import { finishedDraft } from "../../src/store/log-lines.ts";
import {
  allLines,
  failure,
  NOON,
  sampleExec,
  sampleOutcome,
  sampleSandbox,
  stdout,
} from "../store/samples.ts";
import type { StoreKind } from "./store-harness.ts";

async function withExec(store: Store, change: Partial<ExecRecord> = {}): Promise<ExecRecord> {
  const sandbox = sampleSandbox();
  const exec = sampleExec(sandbox.id, change);
  await store.sandboxes.insert(sandbox);
  await store.execs.insert(exec);
  return exec;
}

/** Registers the suite for one kind of store. */
export function sandboxStoreContract(kind: StoreKind): void {
  describe(`SandboxStore of ${kind.name}`, () => describeSandboxes(kind));
  describe(`ExecStore of ${kind.name}`, () => describeExecs(kind));
}

function describeSandboxes(kind: StoreKind): void {
  test("gives back what was inserted, once", async () => {
    await using store = await kind.open();
    const sandbox = sampleSandbox();
    await store.sandboxes.insert(sandbox);
    expect(await store.sandboxes.get(sandbox.id)).toEqual(sandbox);
    expect(await store.sandboxes.get(newId())).toBeNull();
    const error = await failure(store.sandboxes.insert(sandbox));
    expect(error.code).toBe("already_exists");
  });

  test("lists a tenant's, newest first, in pages", async () => {
    await using store = await kind.open();
    const ids: string[] = [];
    for (let at = 0; at < 5; at += 1) {
      const sandbox = sampleSandbox({ createdAt: NOON + at });
      ids.unshift(sandbox.id);
      await store.sandboxes.insert(sandbox);
    }
    await store.sandboxes.insert(sampleSandbox({ tenant: "other" }));
    const first = await store.sandboxes.list({ tenant: "acme", limit: 3 });
    expect(first.sandboxes.map(({ id }) => id)).toEqual(ids.slice(0, 3));
    const cursor = first.nextCursor ?? "";
    const second = await store.sandboxes.list({ tenant: "acme", limit: 3, cursor });
    expect(second.sandboxes.map(({ id }) => id)).toEqual(ids.slice(3));
    expect(second.nextCursor).toBeNull();
    const bad = await failure(store.sandboxes.list({ tenant: "acme", limit: 3, cursor: "x" }));
    expect(bad).toMatchObject({ code: "invalid_argument", field: "cursor" });
  });

  test("keeps where one was placed, and counts that among its tenant's bytes", async () => {
    await using store = await kind.open();
    const plain = sampleSandbox();
    await store.sandboxes.insert(plain);
    const before = await store.storedBytes("acme");
    const placement = { labels: { gpu: "a100", zone: "é" } };
    const placed = sampleSandbox({ placement, workerId: "worker-1" });
    await store.sandboxes.insert(placed);
    expect(await store.sandboxes.get(placed.id)).toEqual(placed);
    const bytes = Buffer.byteLength(JSON.stringify(placement));
    expect(await store.storedBytes("acme")).toBe(2 * before + bytes);
    await store.sandboxes.end(placed.id, "worker_lost", NOON);
    expect(await store.sandboxes.get(placed.id)).toMatchObject({ reason: "worker_lost" });
    while (!(await store.prune(NOON + 1)).isDone) {}
    expect(await store.sandboxes.get(placed.id)).toBeNull();
    expect(await store.storedBytes("acme")).toBe(before);
  });

  test("ends one once, and lists it no more among the open", async () => {
    await using store = await kind.open();
    const { id } = sampleSandbox();
    const open = sampleSandbox();
    await store.sandboxes.insert(sampleSandbox({ id }));
    await store.sandboxes.insert(open);
    const ended = await store.sandboxes.end(id, "idle", NOON + 7);
    expect(ended).toMatchObject({ id, reason: "idle", endedAt: NOON + 7 });
    expect(await store.sandboxes.end(id, "user", NOON + 8)).toBeNull();
    expect(await store.sandboxes.end(newId(), "user", NOON)).toBeNull();
    expect(await store.sandboxes.get(id)).toMatchObject({ reason: "idle", endedAt: NOON + 7 });
    const listed = await store.sandboxes.list({ tenant: "acme", limit: 10, isOpen: true });
    expect(listed.sandboxes.map((one) => one.id)).toEqual([open.id]);
    const all = await store.sandboxes.list({ tenant: "acme", limit: 10 });
    expect(all.sandboxes.map((one) => one.id).sort()).toEqual([id, open.id].sort());
  });

  test("finds the open ones of dead instances", async () => {
    await using store = await kind.open();
    const dead = sampleSandbox({ instance: "dead" });
    const ended = sampleSandbox({ instance: "dead" });
    for (const sandbox of [dead, ended, sampleSandbox()]) await store.sandboxes.insert(sandbox);
    await store.sandboxes.end(ended.id, "user", NOON);
    const found = await store.sandboxes.orphans(["here"]);
    expect(found.map(({ id }) => id)).toEqual([dead.id]);
  });
}

function describeExecs(kind: StoreKind): void {
  test("gives back what was inserted, once, and lists a sandbox's", async () => {
    await using store = await kind.open();
    const exec = await withExec(store);
    await withExec(store);
    const later = sampleExec(exec.sandboxId, { createdAt: NOON + 1, hasTerminal: false });
    await store.execs.insert(later);
    expect(await store.execs.get(exec.id)).toEqual(exec);
    expect((await failure(store.execs.insert(exec))).code).toBe("already_exists");
    const first = await store.execs.list({ sandboxId: exec.sandboxId, limit: 1 });
    expect(first.execs).toEqual([later]);
    const cursor = first.nextCursor ?? "";
    const second = await store.execs.list({ sandboxId: exec.sandboxId, limit: 1, cursor });
    expect(second).toEqual({ execs: [exec], nextCursor: null });
  });

  test("finish() commits status, terminal event and the tenant's chain together, once", async () => {
    await using store = await kind.open();
    const first = await withExec(store);
    const second = await withExec(store);
    await store.events.append(`exec:${first.id}`, [stdout("a")]);
    const outcome = sampleOutcome({ exitCode: 3 });
    const ended = await store.execs.finish(first.id, outcome, NOON + 5);
    expect(ended).toMatchObject({ status: "failed", finishedAt: NOON + 5, outcome });
    expect(await store.execs.get(first.id)).toEqual(ended);
    expect(await store.execs.finish(first.id, outcome, NOON + 6)).toBeNull();
    const lines = await allLines(store.events, `exec:${first.id}`);
    expect(lines.map(({ line }) => JSON.parse(line).kind)).toEqual(["stdout", "finished"]);
    await store.execs.finish(second.id, outcome, NOON + 9);
    const [one, two] = await Promise.all([
      store.events.head(`exec:${first.id}`),
      store.events.head(`exec:${second.id}`),
    ]);
    expect(one?.complete).toBe(true);
    expect(toHex(two?.previous ?? new Uint8Array())).toBe(toHex(one?.hash ?? new Uint8Array(1)));
  });

  test("storedBytes() counts an exec's log as it grows, and what a sandbox leaves", async () => {
    await using store = await kind.open();
    const exec = await withExec(store);
    const { limits, labels } = sampleSandbox();
    const sandbox = Buffer.byteLength(JSON.stringify(limits) + JSON.stringify(labels));
    expect(await store.storedBytes("acme")).toBe(sandbox);
    const sum = async () => {
      const lines = await allLines(store.events, `exec:${exec.id}`);
      return lines.reduce((bytes, { line }) => bytes + Buffer.byteLength(line), sandbox);
    };
    await store.events.append(`exec:${exec.id}`, [stdout("é".repeat(1000))]);
    expect(await store.storedBytes("acme")).toBe(await sum());
    expect(await sum()).toBeGreaterThan(2000);
    await store.execs.finish(exec.id, sampleOutcome(), NOON);
    const argv = Buffer.byteLength(JSON.stringify(exec.argv));
    expect(await store.storedBytes("acme")).toBe((await sum()) + argv);
    expect(await store.storedBytes("other")).toBe(0);
  });

  test("nobody else ends the log of an exec", async () => {
    await using store = await kind.open();
    const { id } = await withExec(store);
    const draft = { at: NOON, draft: finishedDraft(sampleOutcome()) };
    const error = await failure(store.events.append(`exec:${id}`, [draft]));
    expect(error.reason).toBe("FINISH_REQUIRED");
  });

  test("finds what runs under dead instances", async () => {
    await using store = await kind.open();
    const dead = await withExec(store, { instance: "dead" });
    const ended = await withExec(store, { instance: "dead" });
    await withExec(store);
    await store.execs.finish(ended.id, sampleOutcome(), NOON);
    const found = await store.execs.orphans(["here"]);
    expect(found.map(({ id }) => id)).toEqual([dead.id]);
  });
}
