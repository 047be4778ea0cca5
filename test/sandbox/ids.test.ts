import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../../src/core/errors.ts";
import { IdPool, listIds, type SandboxIds, sweepIds } from "../../src/sandbox/ids.ts";
import { Native } from "../../src/sandbox/native.ts";
import { requireHost } from "../helpers/host.ts";
import { makeDirs } from "./test-engine.ts";

const host = requireHost({ linux: true });

/** Holds the lock of the file that it is given until its input ends. */
const HOLDER =
  "import fcntl,os,sys\nfd=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT,0o600)\nfcntl.flock(fd,fcntl.LOCK_EX)\nprint('held',flush=True)\nsys.stdin.read()\n";

host.describe("host ids", () => {
  const dirs = makeDirs();
  const directory = join(dirs.top, "ids");
  let native: Native;
  beforeAll(async () => {
    native = await Native.load({ dataDir: dirs.data });
  });
  afterAll(() => rmSync(dirs.top, { recursive: true, force: true }));
  const pool = (base: number, count: number) =>
    new IdPool(native, { directory, range: { base, count } });
  const takeAll = (from: IdPool): SandboxIds[] => {
    const taken: SandboxIds[] = [];
    for (;;) {
      try {
        taken.push(from.take());
      } catch (error) {
        if (CprgError.is(error) && error.reason === "NO_IDS") return taken;
        throw error;
      }
    }
  };

  test("two ranges that overlap, whatever they begin with, never share an id", () => {
    const taken = [...takeAll(pool(2000, 8)), ...takeAll(pool(2003, 9))];
    const ids = taken.flatMap(({ init, program }) => [init, program]);
    expect(ids).toEqual([2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2009, 2010, 2011]);
    expect(listIds(directory)).toHaveLength(6);
    for (const held of taken) held.release();
    expect(readdirSync(directory)).toEqual([]);
  });

  test("a slot is taken as long as another process holds its lock, and no longer", async () => {
    const path = join(directory, "3000");
    const holder = Bun.spawn(["/usr/bin/python3", "-c", HOLDER, path], {
      stdin: "pipe",
      stdout: "pipe",
      env: {},
    });
    await holder.stdout.getReader().read();
    expect(sweepIds(native, directory)).toBe(0);
    expect(takeAll(pool(3000, 2))).toEqual([]);
    holder.kill("SIGKILL");
    await holder.exited;
    const [held] = takeAll(pool(3000, 2));
    expect(held?.init).toBe(3000);
    held?.release();
  });

  test("a release frees its own slot only, also the second time", () => {
    const first = pool(4000, 2).take();
    // Somebody removes the directory beneath a living server, and another takes the same slot.
    rmSync(directory, { recursive: true });
    mkdirSync(directory, { mode: 0o700 });
    const second = pool(4000, 2).take();
    first.release();
    first.release();
    expect(takeAll(pool(4000, 2))).toEqual([]);
    second.release();
    expect(takeAll(pool(4000, 2)).map(({ release }) => release())).toHaveLength(1);
    expect(readdirSync(directory)).toEqual([]);
  });

  test("files of servers that died are swept, those of living ones are not", async () => {
    const held = pool(5000, 2).take();
    await Bun.write(join(directory, "5002"), "");
    expect(sweepIds(native, directory)).toBe(1);
    expect(readdirSync(directory)).toEqual(["5000"]);
    held.release();
  });

  test("a range without a whole pair is refused", () => {
    for (const [base, count] of [
      [2001, 2],
      [2000, 1],
      [998, 4],
      [2000.5, 8],
    ] as const) {
      expect(() => pool(base, count)).toThrow("Cannot use ids");
    }
  });
});
