import { expect, test } from "bun:test";
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { Native } from "../../src/sandbox/native.ts";
import { requireHost } from "../helpers/host.ts";
import { makeDirs } from "./test-engine.ts";

const host = requireHost({ linux: true });

host.describe("native.ts", () => {
  test("loads from memory and leaves no file", async () => {
    const dirs = makeDirs();
    await Native.load({ dataDir: dirs.data });
    expect(existsSync(dirs.data)).toBe(false);
    // Mapped, but neither from a file nor from a descriptor that is still open.
    expect(readFileSync("/proc/self/maps", "utf8")).toContain("/memfd:libcprg (deleted)");
    const open = readdirSync("/proc/self/fd").map((fd) => linkOf(fd));
    expect(open.filter((target) => target.includes("memfd:libcprg"))).toEqual([]);
    rmSync(dirs.top, { recursive: true });
  });

  test("loads from the data directory where memfds are forbidden, and leaves no file either", async () => {
    const dirs = makeDirs();
    const native = await Native.load({ dataDir: dirs.data, memfd: false });
    expect(readdirSync(dirs.data)).toEqual([]);
    const [read, write] = native.pipe("read");
    expect(native.drain(read)).toBeNull();
    closeSync(write);
    expect(native.drain(read)).toBe(0);
    closeSync(read);
    rmSync(dirs.top, { recursive: true });
  });

  test("lock() is held by one, and freed with its descriptor", async () => {
    const dirs = makeDirs();
    const native = await Native.load({ dataDir: dirs.data });
    const path = join(dirs.top, "lock");
    const held = native.lock(path);
    expect(native.lock(path)).toBeNull();
    if (held !== null) closeSync(held);
    const again = native.lock(path);
    expect(again).not.toBeNull();
    if (again !== null) closeSync(again);
    rmSync(dirs.top, { recursive: true });
  });

  test("openBeneath() follows no link and does not leave the directory", async () => {
    const dirs = makeDirs();
    const native = await Native.load({ dataDir: dirs.data });
    mkdirSync(join(dirs.top, "in", "sub"), { recursive: true });
    writeFileSync(join(dirs.top, "in", "sub", "file"), "x");
    writeFileSync(join(dirs.top, "outside"), "x");
    symlinkSync("../outside", join(dirs.top, "in", "link"));
    symlinkSync("..", join(dirs.top, "in", "up"));
    const base = openSync(join(dirs.top, "in"), constants.O_RDONLY | constants.O_DIRECTORY);
    const fd = native.openBeneath(base, "sub/file", constants.O_RDONLY);
    expect(fstatSync(fd).size).toBe(1);
    closeSync(fd);
    for (const path of ["link", "up/outside", "../outside", "/etc/passwd", "sub/../../outside"]) {
      expect(() => native.openBeneath(base, path, constants.O_RDONLY)).toThrow();
    }
    closeSync(base);
    rmSync(dirs.top, { recursive: true });
  });

  test("a process that is gone has no pidfd, and cannot be signalled", async () => {
    const dirs = makeDirs();
    const native = await Native.load({ dataDir: dirs.data });
    const child = Bun.spawn(["sleep", "1000"]);
    const pidfd = native.pidfd(child.pid);
    if (pidfd === null) throw new Error("no pidfd");
    expect(native.signal(pidfd, 9)).toBe(true);
    await child.exited;
    expect(native.signal(pidfd, 9)).toBe(false);
    closeSync(pidfd);
    expect(native.pidfd(0x3f_ffff)).toBeNull();
    rmSync(dirs.top, { recursive: true });
  });
});

function linkOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    // The descriptor of the listing itself.
    return "";
  }
}
