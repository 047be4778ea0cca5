// What the pool keeps, for whom, and how it ends; sandboxes are objects here, test/sandbox has real ones.

import { expect, test } from "bun:test";
import { DEFAULT_LIMITS, type Limits } from "../../../src/core/limits.ts";
import { type Log, silentLog } from "../../../src/core/log.ts";
import { SandboxPool } from "../../../src/sandbox/pool.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";

const BIG: Limits = { ...DEFAULT_LIMITS, mem_mb: 512 };

interface Built {
  readonly limits: Limits;
  readonly sandbox: Sandbox;
  isDestroyed: boolean;
  die(): void;
}

/** A pool whose sandboxes are built when the test says so. */
function poolOf(sandboxesMax: number, log: Log = silentLog) {
  const built: Built[] = [];
  let gate: Promise<void> | null = null;
  let failure: Error | null = null;
  let calm: Promise<void> = Promise.resolve();
  const dead = new Set<number>();
  const pool = new SandboxPool({
    sandboxesMax,
    log,
    isAlive: ({ pid }) => !dead.has(pid),
    calm: () => calm,
    build: async (limits) => {
      await gate;
      if (failure !== null) throw failure;
      const death = Promise.withResolvers<never>();
      death.promise.catch(() => undefined);
      const one: Built = {
        limits,
        isDestroyed: false,
        die: () => death.reject(new Error("killed")),
        sandbox: {
          pid: built.length + 1,
          death: death.promise,
          destroy: () => {
            one.isDestroyed = true;
            return Promise.resolve();
          },
        } as unknown as Sandbox,
      };
      built.push(one);
      return one.sandbox;
    },
  });
  return {
    pool,
    built,
    /** Process 1 of it is dead, and nobody has heard of it. */
    dies: (sandbox: Sandbox) => dead.add(sandbox.pid),
    block: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      gate = promise;
      return () => {
        gate = null;
        resolve();
      };
    },
    /** Somebody is in a hurry until the result is called. */
    rush: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      calm = promise;
      return resolve;
    },
    fail: (error: Error | null) => {
      failure = error;
    },
  };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

test("fills to its bound, one after the other", async () => {
  const { pool, built, block } = poolOf(3);
  const open = block();
  pool.fill(DEFAULT_LIMITS);
  pool.fill(DEFAULT_LIMITS);
  expect(pool.size).toBe(0);
  open();
  await settle();
  expect(pool.size).toBe(3);
  expect(built).toHaveLength(3);
});

test("a pool of none builds none", async () => {
  const { pool, built } = poolOf(0);
  pool.fill(DEFAULT_LIMITS);
  expect(pool.take(DEFAULT_LIMITS)).toBeNull();
  await settle();
  expect(built).toHaveLength(0);
});

test("gives each sandbox once, oldest first, and builds its successor", async () => {
  const { pool, built } = poolOf(2);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  expect(pool.take(DEFAULT_LIMITS)?.pid).toBe(1);
  expect(pool.take(DEFAULT_LIMITS)?.pid).toBe(2);
  expect(pool.take(DEFAULT_LIMITS)).toBeNull();
  await settle();
  expect(pool.size).toBe(2);
  expect(built.map(({ isDestroyed }) => isDestroyed)).toEqual([false, false, false, false]);
});

test("what an exec alone is limited by makes no difference", async () => {
  const { pool } = poolOf(1);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  const exec = { ...DEFAULT_LIMITS, wall_seconds: 1, output_kb: 1, open_files: 8, file_mb: 1 };
  expect(pool.take(exec)).not.toBeNull();
});

test.each(["mem_mb", "cpu_cores", "pids", "disk_mb", "inodes"] as const)(
  "never gives a sandbox with another %s",
  async (name) => {
    const { pool } = poolOf(1);
    pool.fill(DEFAULT_LIMITS);
    await settle();
    expect(pool.take({ ...DEFAULT_LIMITS, [name]: DEFAULT_LIMITS[name] + 1 })).toBeNull();
  },
);

test("follows what is asked for: the oldest of other limits makes room", async () => {
  const { pool, built } = poolOf(2);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  expect(pool.take(BIG)).toBeNull();
  await settle();
  expect(built.map(({ isDestroyed }) => isDestroyed)).toEqual([true, false, false]);
  expect(pool.size).toBe(2);
  expect(pool.take(BIG)?.pid).toBe(3);
  expect(pool.take(DEFAULT_LIMITS)?.pid).toBe(2);
});

test("one that dies while it waits is removed and not given", async () => {
  const { pool, built } = poolOf(1);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  built[0]?.die();
  await settle();
  expect(pool.size).toBe(0);
  expect(built[0]?.isDestroyed).toBe(true);
  expect(pool.take(DEFAULT_LIMITS)).toBeNull();
});

test("one that dies after it was taken is not the pool's any more", async () => {
  const { pool, built } = poolOf(1);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  pool.take(DEFAULT_LIMITS);
  built[0]?.die();
  await settle();
  expect(built[0]?.isDestroyed).toBe(false);
});

test("a failed build is told once and tried again only when one is asked for", async () => {
  const warnings: string[] = [];
  const log = { ...silentLog, warn: (message: string) => warnings.push(message) };
  const { pool, built, fail } = poolOf(2, log);
  fail(new Error("no memory"));
  pool.fill(DEFAULT_LIMITS);
  await settle();
  expect(warnings).toEqual(["no sandbox built ahead"]);
  expect(pool.size).toBe(0);
  fail(null);
  await settle();
  expect(built).toHaveLength(0);
  expect(pool.take(DEFAULT_LIMITS)).toBeNull();
  await settle();
  expect(pool.size).toBe(2);
});

test("the room of one that died is filled with the next that is asked for", async () => {
  const { pool, built } = poolOf(2);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  built[0]?.die();
  await settle();
  expect(pool.size).toBe(1);
  expect(pool.take(DEFAULT_LIMITS)?.pid).toBe(2);
  await settle();
  expect(pool.size).toBe(2);
});

test("the end takes those that wait and the one that is being built, and starts no more", async () => {
  const { pool, built, block } = poolOf(3);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  const open = block();
  pool.take(DEFAULT_LIMITS);
  await settle();
  const closing = pool.close();
  expect(pool.take(BIG)).toBeNull();
  open();
  await closing;
  expect(built.map(({ isDestroyed }) => isDestroyed)).toEqual([false, true, true, true]);
  expect(pool.size).toBe(0);
  await pool.close();
});

test("one that has died unheard is not given out, and is removed", async () => {
  const { pool, built, dies } = poolOf(2);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  const [first, second] = built;
  if (first === undefined || second === undefined) throw new Error("not filled");
  dies(first.sandbox);
  expect(pool.take(DEFAULT_LIMITS)).toBe(second.sandbox);
  await settle();
  expect([first.isDestroyed, second.isDestroyed]).toEqual([true, false]);
  for (const { sandbox } of built) dies(sandbox);
  expect(pool.take(DEFAULT_LIMITS)).toBeNull();
  await settle();
  expect(pool.size).toBe(2);
});

test("gives way: all that wait or are being built are gone when it says so", async () => {
  const { pool, built, block } = poolOf(3);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  pool.take(DEFAULT_LIMITS);
  await settle();
  const open = block();
  pool.take(DEFAULT_LIMITS);
  const given = pool.giveWay();
  open();
  expect(await given).toBe(true);
  expect(pool.size).toBe(0);
  expect(built.filter(({ isDestroyed }) => !isDestroyed)).toHaveLength(2);
  expect(await pool.giveWay()).toBe(false);
  pool.take(DEFAULT_LIMITS);
  await settle();
  expect(pool.size).toBe(3);
});

test("the successor is not built beside whoever took what was there, and none is forgotten", async () => {
  const { pool, built, rush } = poolOf(2);
  pool.fill(DEFAULT_LIMITS);
  await settle();
  const calmDown = rush();
  expect(pool.take(DEFAULT_LIMITS)?.pid).toBe(1);
  await settle();
  expect(pool.take(DEFAULT_LIMITS)?.pid).toBe(2);
  await settle();
  expect(built).toHaveLength(2);
  calmDown();
  await settle();
  expect(pool.size).toBe(2);
});
