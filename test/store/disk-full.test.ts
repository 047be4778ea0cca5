import { expect } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { TempDir } from "./samples.ts";

const host = requireHost({ root: true, programs: ["unshare", "mount"] });

/** What a fixture prints that has a disk of some MiB to itself, which goes with its process. */
async function onSmallDisk(fixture: string, mib: number) {
  using folder = new TempDir();
  const path = `${import.meta.dir}/fixtures/${fixture}`;
  const script = `mount -t tmpfs -o size=${mib}m tmpfs "$1" && exec "$2" "$3" "$1"`;
  const child = Bun.spawn(
    ["unshare", "--mount", "sh", "-c", script, "sh", folder.path, process.execPath, path],
    { stdout: "pipe", stderr: "inherit" },
  );
  const result = JSON.parse(await new Response(child.stdout).text());
  await child.exited;
  return result;
}

host.test(
  "a full disk is DISK_FULL, damages nothing, refuses only what does not fit, and lets jobs end",
  async () => {
    const result = await onSmallDisk("fill-disk.ts", 4);
    expect(result).toMatchObject({
      code: "resource_exhausted",
      reason: "DISK_FULL",
      hint: expect.stringContaining("space"),
      verified: true,
      large: "rejected",
      small: "fulfilled",
      end: "fulfilled",
      afterEnd: "DISK_FULL",
      checked: "DISK_FULL",
      afterRoom: "fulfilled",
    });
    expect(result.acknowledged).toBeGreaterThan(5);
    expect(result.kept).toBe(result.acknowledged);
  },
  30_000,
);

host.test(
  "on a full disk what is past its time can be removed, which gives room for what comes",
  async () => {
    const { freed, ...result } = await onSmallDisk("prune-full-disk.ts", 20);
    expect(result).toEqual({
      toldBefore: 0,
      isTold: true,
      end: "fulfilled",
      removed: 102,
      checked: "fulfilled",
      after: "fulfilled",
      isKept: true,
      isGone: true,
      closed: "STORE_CLOSED",
    });
    expect(freed).toBeGreaterThan(4 * 1024 * 1024);
  },
  30_000,
);
