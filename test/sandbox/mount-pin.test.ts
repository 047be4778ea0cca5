// The server's hold on the mounts of a sandbox: as long as it lives, and no longer.

import { expect, test } from "bun:test";
import { readdirSync, readlinkSync } from "node:fs";
import { pinMounts } from "../../src/sandbox/mount-pin.ts";
import { requireHost } from "../helpers/host.ts";
import { pidsOfRange } from "./snapshot.ts";
import { ID_RANGE, until, useEngine } from "./test-engine.ts";

/** Mount namespaces that this process holds. */
function held(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return target.startsWith("mnt:[") ? [target] : [];
    } catch {
      return [];
    }
  });
}

requireHost({ sandbox: true, ids: true }).describe("the mounts of a sandbox", () => {
  const bench = useEngine();

  test("are held while it lives, and let go of when it is gone", async () => {
    const lease = await bench.open();
    const [init] = pidsOfRange(ID_RANGE);
    const own = readlinkSync(`/proc/${init}/ns/mnt`);
    expect(held()).toContain(own);
    await lease.release();
    expect(pidsOfRange(ID_RANGE)).toEqual([]);
    await until("they are let go of", () => !held().includes(own));
  });
});

test("nothing is held of a process that is gone, and that is no error", () => {
  const before = held();
  // Larger than any pid (proc_sys_kernel(5), pid_max).
  const release = pinMounts(2 ** 22 + 1);
  expect(held()).toEqual(before);
  release();
  release();
});
