import { ptr } from "bun:ffi";
import { afterAll, describe, expect, test } from "bun:test";
import {
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { constants as osConstants } from "node:os";
import { join } from "node:path";
import {
  childEnv,
  native,
  pipe,
  receive,
  removeTemporaryDirectories,
  send,
  socketpair,
  temporaryDirectory,
  waitReadable,
} from "./native.ts";

const { EAGAIN, ENOTDIR, ELOOP, EXDEV, EMSGSIZE } = osConstants.errno;

const directory = temporaryDirectory();
afterAll(removeTemporaryDirectories);
const cstring = (text: string): Buffer => Buffer.from(`${text}\0`);

describe("cprg_memfd()", () => {
  test("holds the bytes, sealed, closed on exec", () => {
    const bytes = Buffer.alloc(100_000, "cprg");
    const fd = native.cprg_memfd(cstring("test"), ptr(bytes), bytes.byteLength);
    expect(fd).toBeGreaterThan(0);
    expect(readFileSync(`/proc/self/fd/${fd}`).equals(bytes)).toBe(true);
    expect(() => writeSync(fd, "x")).toThrow("EPERM");
    expect(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8")).toMatch(/flags:\s+02\d{6}/);
    closeSync(fd);
  });
});

describe("cprg_pipe()", () => {
  test.each<[number, number, number]>([
    [0, 0, 0],
    [1, 1, 0],
    [2, 0, 1],
    [3, 1, 1],
  ])("nonblock %d", (nonblock, read, write) => {
    const fds = pipe(nonblock);
    const flags = fds.map(
      (fd) => /flags:\s+(\d+)/.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1],
    );
    const set: number[] = flags.map((octal) =>
      (Number.parseInt(octal ?? "0", 8) & constants.O_NONBLOCK) === 0 ? 0 : 1,
    );
    expect(set).toEqual([read, write]);
    for (const fd of fds) closeSync(fd);
  });
});

describe("cprg_read()", () => {
  test("never blocks, drains, and answers 0 at the end only", () => {
    const [read, write] = pipe(0); // a blocking pipe: the worst case
    const buffer = new Uint8Array(16);
    const readIt = (): number => native.cprg_read(read, ptr(buffer), buffer.byteLength);
    expect(readIt()).toBe(-EAGAIN);
    writeSync(write, "0123456789abcdefXYZ");
    expect(readIt()).toBe(16);
    expect(readIt()).toBe(3);
    expect(readIt()).toBe(-EAGAIN);
    writeSync(write, "z");
    closeSync(write);
    expect(readIt()).toBe(1);
    expect(readIt()).toBe(0);
    closeSync(read);
  });

  test("refuses a buffer whose length its answer could not say", () => {
    const [read, write] = pipe(0);
    const buffer = new Uint8Array(16);
    writeSync(write, "x");
    expect(native.cprg_read(read, ptr(buffer), 0x8000_0000)).toBe(-osConstants.errno.EINVAL);
    expect(native.cprg_read(read, ptr(buffer), buffer.byteLength)).toBe(1);
    closeSync(write);
    closeSync(read);
  });
});

describe("cprg_readable()", () => {
  test("says whether a read would not wait: for bytes, and for the end", () => {
    const [read, write] = pipe(0);
    expect(native.cprg_readable(read)).toBe(0);
    writeSync(write, "x");
    expect(native.cprg_readable(read)).toBe(1);
    expect(native.cprg_read(read, ptr(new Uint8Array(1)), 1)).toBe(1);
    expect(native.cprg_readable(read)).toBe(0);
    closeSync(write);
    expect(native.cprg_readable(read)).toBe(1);
    closeSync(read);
  });
});

describe("cprg_send() and cprg_receive()", () => {
  test("carry one message with descriptors, whole or not at all", () => {
    const [left, right] = socketpair();
    const [read, write] = pipe();
    expect(receive(right).length).toBe(-EAGAIN);
    expect(send(left, Buffer.from("hello"), [write])).toBe(0);
    const received = receive(right);
    expect(Buffer.from(received.bytes.subarray(0, received.length)).toString()).toBe("hello");
    expect(received.fds).toHaveLength(1);
    writeSync(received.fds[0] ?? -1, "through");
    waitReadable(read);

    // What does not fit is refused, and its descriptors are closed.
    const open = (): number => statSync("/proc/self/fd").nlink;
    const before = open();
    send(left, Buffer.alloc(64), [write]);
    expect(receive(right, 8).length).toBe(-EMSGSIZE);
    send(left, Buffer.alloc(8), [write, write]);
    expect(receive(right, 64, 1).length).toBe(-EMSGSIZE);
    expect(open()).toBe(before);

    expect(send(left, Buffer.alloc(196_608))).toBe(0);
    expect(receive(right, 196_608).length).toBe(196_608);
    expect(send(left, Buffer.alloc(196_609))).toBe(-EMSGSIZE);
    closeSync(left);
    expect(receive(right).length).toBe(0);
    for (const fd of [right, read, write, ...received.fds]) closeSync(fd);
  });

  test("answers -EAGAIN when the socket is full, and never blocks", () => {
    const [left, right] = socketpair();
    let sent = 0;
    while (send(left, Buffer.alloc(190_000)) === 0) sent++;
    expect(sent).toBeGreaterThan(0);
    expect(send(left, Buffer.alloc(190_000))).toBe(-EAGAIN);
    closeSync(left);
    closeSync(right);
  });
});

describe("cprg_lock()", () => {
  test("holds a file against a second holder, and creates it private", () => {
    const path = join(directory, "lock");
    const first = native.cprg_lock(cstring(path));
    expect(first).toBeGreaterThan(0);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(native.cprg_lock(cstring(path))).toBe(-EAGAIN);
    closeSync(first);
    const second = native.cprg_lock(cstring(path));
    expect(second).toBeGreaterThan(0);
    closeSync(second);
  });
});

describe("cprg_open_beneath()", () => {
  mkdirSync(join(directory, "base/inner"), { recursive: true });
  writeFileSync(join(directory, "base/inner/file"), "inside");
  writeFileSync(join(directory, "secret"), "outside");
  symlinkSync("../secret", join(directory, "base/escape"));
  symlinkSync("inner", join(directory, "base/link"));
  symlinkSync("/etc", join(directory, "base/absolute"));

  const cases: [string, number][] = [
    ["inner/file", 1],
    ["inner/../inner/file", 1],
    ["../secret", -EXDEV],
    ["/etc/passwd", -EXDEV],
    ["escape", -ELOOP],
    ["link/file", -ELOOP],
    ["absolute/passwd", -ELOOP],
    ["inner/file/x", -ENOTDIR],
    ["missing", -2],
  ];
  test.each(cases)("%s", (path, expected) => {
    const base = openSync(join(directory, "base"), "r");
    const fd = native.cprg_open_beneath(base, cstring(path), constants.O_RDONLY, 0);
    expect(expected > 0 ? Math.sign(fd) : fd).toBe(expected);
    if (fd >= 0) {
      expect(readFileSync(fd, "utf8")).toBe("inside");
      closeSync(fd);
    }
    closeSync(base);
  });
});

describe("cprg_open_within()", () => {
  const cases: [string, number][] = [
    ["inner/file", 1],
    ["link/file", 1],
    ["link/../link/file", 1],
    ["../secret", -EXDEV],
    ["/etc/passwd", -EXDEV],
    ["escape", -EXDEV],
    ["absolute/passwd", -EXDEV],
    ["link/../../secret", -EXDEV],
    ["missing", -2],
  ];
  test.each(cases)("%s", (path, expected) => {
    const base = openSync(join(directory, "base"), "r");
    const fd = native.cprg_open_within(base, cstring(path), constants.O_RDONLY, 0);
    expect(expected > 0 ? Math.sign(fd) : fd).toBe(expected);
    if (fd >= 0) {
      expect(readFileSync(fd, "utf8")).toBe("inside");
      closeSync(fd);
    }
    closeSync(base);
  });

  test("a last component that is a link is followed unless it may not be", () => {
    const base = openSync(join(directory, "base"), "r");
    const fd = native.cprg_open_within(base, cstring("link"), constants.O_RDONLY, 0);
    expect(fd).toBeGreaterThan(0);
    closeSync(fd);
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW;
    expect(native.cprg_open_within(base, cstring("link"), flags, 0)).toBe(-ELOOP);
    closeSync(base);
  });
});

describe("cprg_statfs()", () => {
  test("answers what df would", () => {
    const fd = openSync("/dev/shm", "r");
    const out = new BigUint64Array(5);
    expect(native.cprg_statfs(fd, ptr(out))).toBe(0);
    const [blockBytes = 0n, blocks = 0n, blocksFree = 0n, inodes = 0n, inodesFree = 0n] = out;
    expect(blockBytes).toBeGreaterThan(0n);
    expect(blocks).toBeGreaterThanOrEqual(blocksFree);
    expect(inodes).toBeGreaterThanOrEqual(inodesFree);
    closeSync(fd);
    expect(native.cprg_statfs(-1, ptr(out))).toBe(-9);
  });
});

describe("cprg_pidfd() and cprg_signal()", () => {
  test("reach a process by descriptor, and a dead one not at all", async () => {
    const child = Bun.spawn(["/bin/cat"], { stdin: "pipe" });
    const pidfd = native.cprg_pidfd(child.pid);
    expect(pidfd).toBeGreaterThan(0);
    expect(native.cprg_signal(pidfd, 15)).toBe(0);
    await child.exited;
    expect(child.signalCode).toBe("SIGTERM");
    expect(native.cprg_signal(pidfd, 15)).toBe(-3);
    closeSync(pidfd);
  });
});

describe("cprg_harden()", () => {
  test("ends core dumps and ptrace by others", async () => {
    const script = `
      import { harden } from ${JSON.stringify(join(import.meta.dir, "harden-self.ts"))};
      harden();`;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", env: childEnv });
    expect(await new Response(child.stdout).text()).toBe(
      "dumpable 0\nMax core file size        1                    1                    bytes\n",
    );
  });
});
