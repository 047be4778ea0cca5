// fs.* on a host without a sandbox: what is served, what is refused, and that nothing leads out.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  FS_LIST_DIR,
  FS_MAKE_DIR,
  FS_READ_FILE,
  FS_REMOVE,
  FS_RENAME,
  FS_STAT,
  FS_UPLOAD,
} from "../../src/bridge/methods.ts";
import type { FsUploadItem } from "../../src/gen/messages.ts";
import { fileCalls, tarOf } from "./file-calls.ts";
import { CLAIM, type Ground, ground, refusal } from "./ground.ts";

const claim = CLAIM;
let there: Ground;

beforeEach(async () => {
  there = await ground();
  await there.claim();
});

afterEach(async () => {
  await there[Symbol.asyncDispose]();
});

const { at, write, read, staged, download, upload } = fileCalls(() => there);

test("a file is written whole, read in parts, and keeps its mode", async () => {
  await write("a.txt", "0123456789", { mode: 0o600 });
  expect(await read("a.txt")).toBe("0123456789");
  expect(await read("a.txt", { offset: 3, length: 4 })).toBe("3456");
  expect(await read("a.txt", { offset: 20 })).toBe("");
  const answer = await there.plane.call(FS_READ_FILE, { claim, path: at("a.txt"), length: 1 });
  expect(answer).toMatchObject({ size: 10, mode: 0o600 });
  await write("a.txt", "again");
  expect(statSync(at("a.txt")).mode & 0o777).toBe(0o600);
  await write("b.txt", "");
  expect(statSync(at("b.txt")).mode & 0o777).toBe(0o644);
  expect(statSync(at("b.txt")).size).toBe(0);
  await write("deep/er/c.txt", "c", { parents: true });
  expect(await read("deep/er/c.txt")).toBe("c");
  expect(await refusal(write("none/c.txt", "c"))).toBe("not_found");
  expect(await refusal(write("deep", "c"))).toBe("failed_precondition IS_DIRECTORY");
  await write(join(there.home, "h"), "home");
  expect(readFileSync(join(there.home, "h"), "utf8")).toBe("home");
  expect(staged()).toEqual([]);
});

test("set-id and sticky bits are neither taken nor sent", async () => {
  await write("s", "x", { mode: 0o4755 });
  expect(statSync(at("s")).mode & 0o7777).toBe(0o755);
  chmodSync(at("s"), 0o6755);
  const { stat } = await there.plane.call(FS_STAT, { claim, path: "s" });
  expect(stat?.mode).toBe(0o755);
});

test("a read beyond the bound says how to go on", async () => {
  writeFileSync(at("big"), Buffer.alloc(3 * 1024 * 1024 + 1));
  expect(await refusal(read("big"))).toBe("out_of_range TOO_LARGE");
  const part = await there.plane.call(FS_READ_FILE, {
    claim,
    path: "big",
    length: 3 * 1024 * 1024,
  });
  expect(part.content.length).toBe(3 * 1024 * 1024);
  expect(await refusal(write("w", "x".repeat(3 * 1024 * 1024 + 1)))).toStartWith(
    "invalid_argument",
  );
});

test("stat means a link itself, and what is there is told by type", async () => {
  mkdirSync(at("d"));
  symlinkSync("d", at("l"));
  spawnSync("mkfifo", [at("p")]);
  const type = async (path: string) =>
    (await there.plane.call(FS_STAT, { claim, path })).stat?.type;
  expect(await type("d")).toBe("directory");
  expect(await type("d/..")).toBe("directory");
  expect(await type(".")).toBe("directory");
  expect(await type(there.root)).toBe("directory");
  expect(await type("p")).toBe("other");
  const { stat } = await there.plane.call(FS_STAT, { claim, path: "l" });
  expect(stat).toMatchObject({ name: "l", type: "link", linkTarget: "d" });
  expect(await refusal(type("none"))).toBe("not_found");
  expect(await refusal(read("p"))).toBe("failed_precondition");
  expect(await refusal(read("d"))).toBe("failed_precondition IS_DIRECTORY");
});

test("a directory is listed by the bytes of its names, in pages", async () => {
  for (const name of ["b", "a", "é", "Z", "a.b"]) writeFileSync(at(name), "");
  const list = async (rest: object) => {
    const { entries, more } = await there.plane.call(FS_LIST_DIR, { claim, path: ".", ...rest });
    return [entries.map(({ name }) => name).join(" "), more];
  };
  expect(await list({})).toEqual(["Z a a.b b é", false]);
  expect(await list({ limit: 2 })).toEqual(["Z a", true]);
  expect(await list({ limit: 3, after: "a" })).toEqual(["a.b b é", false]);
  expect(await refusal(list({ path: "a" }))).toBe("failed_precondition NOT_DIRECTORY");
});

test("directories are made, things renamed and removed", async () => {
  const make = (path: string, rest: object = {}) =>
    there.plane.call(FS_MAKE_DIR, { claim, path, ...rest });
  await make("d", { mode: 0o777 });
  expect(statSync(at("d")).mode & 0o777).toBe(0o777);
  expect(await refusal(make("d"))).toBe("already_exists");
  await make("d", { parents: true });
  expect(await refusal(make("x/y"))).toBe("not_found");
  await make("x/y/z", { parents: true });
  await write("f", "f");
  expect(await refusal(make("f", { parents: true }))).toBe("already_exists");
  expect(await refusal(make("f/g", { parents: true }))).toBe("failed_precondition NOT_DIRECTORY");
  await there.plane.call(FS_RENAME, { claim, from: "f", to: "x/y/z/g" });
  expect(await read("x/y/z/g")).toBe("f");
  expect(await refusal(there.plane.call(FS_RENAME, { claim, from: "f", to: "g" }))).toBe(
    "not_found",
  );
  const remove = (path: string, recursive = false) =>
    there.plane.call(FS_REMOVE, { claim, path, recursive });
  expect(await refusal(remove("x"))).toBe("failed_precondition NOT_EMPTY");
  expect(await remove("x", true)).toEqual({ existed: true });
  expect(await remove("x", true)).toEqual({ existed: false });
  expect(await remove("none/x")).toEqual({ existed: false });
  expect(await remove("d")).toEqual({ existed: true });
});

test("a tree of any depth and any names is removed, and no link is followed", async () => {
  const outside = join(there.home, "kept");
  mkdirSync(outside);
  writeFileSync(join(outside, "file"), "kept");
  const script = `import os
os.chdir(${JSON.stringify(there.root)})
os.mkdir("t"); os.chdir("t")
os.symlink(${JSON.stringify(outside)}, "link")
open(b"bad-\\xff", "w").close(); os.mkdir(b"dir-\\xfe"); open(b"dir-\\xfe/x", "w").close()
for n in range(300):
    os.mkdir("d%d" % n); os.chdir("d%d" % n)
open("end", "w").close()
os.mkdir("shut"); os.chmod("shut", 0)`;
  expect(spawnSync("/usr/bin/python3", ["-c", script]).status).toBe(0);
  await there.plane.call(FS_REMOVE, { claim, path: "t", recursive: true });
  expect(existsSync(at("t"))).toBe(false);
  expect(readFileSync(join(outside, "file"), "utf8")).toBe("kept");
});

test("no path leads out", async () => {
  mkdirSync(at("d"));
  symlinkSync("/etc", at("abs"));
  symlinkSync("../../..", at("up"));
  symlinkSync("d", at("in"));
  for (const path of [
    "../x",
    "d/../../x",
    "/etc/passwd",
    "abs/passwd",
    "up/etc/passwd",
    `${there.root}/../x`,
    `${there.root}x/y`,
  ]) {
    const expected = "permission_denied PATH_ESCAPES";
    expect([path, await refusal(read(path))]).toEqual([path, expected]);
    expect([path, await refusal(write(path, "x"))]).toEqual([path, expected]);
    expect([path, await refusal(download(path))]).toEqual([path, expected]);
    expect([path, await refusal(upload(path, {}))]).toEqual([path, expected]);
    const remove = there.plane.call(FS_REMOVE, { claim, path, recursive: true });
    expect([path, await refusal(remove)]).toEqual([path, expected]);
    const rename = there.plane.call(FS_RENAME, { claim, from: "d", to: path });
    expect([path, await refusal(rename)]).toEqual([path, expected]);
    const make = there.plane.call(FS_MAKE_DIR, { claim, path, parents: true });
    expect([path, await refusal(make)]).toEqual([path, expected]);
  }
  // Links that stay are paths like others.
  await write("in/file", "x");
  expect(await read("d/file")).toBe("x");
  for (const path of ["a\0b", "x".repeat(4096)]) {
    expect(await refusal(read(path))).toStartWith("invalid_argument");
  }
});

test("the last component is a link only where the link itself is meant", async () => {
  writeFileSync(at("file"), "x");
  symlinkSync("file", at("l"));
  symlinkSync(".", at("ld"));
  expect(await refusal(read("l"))).toBe("failed_precondition IS_LINK");
  expect(await refusal(write("l", "y"))).toBe("failed_precondition IS_LINK");
  expect(await refusal(upload("l", {}))).toBe("failed_precondition IS_LINK");
  expect(await refusal(there.plane.call(FS_LIST_DIR, { claim, path: "ld" }))).toBe(
    "failed_precondition IS_LINK",
  );
  expect((await download("l")).head).toMatchObject({ type: "link", linkTarget: "file" });
  await there.plane.call(FS_RENAME, { claim, from: "l", to: "m" });
  expect(readlinkSync(at("m"))).toBe("file");
  await there.plane.call(FS_REMOVE, { claim, path: "m" });
  expect(readFileSync(at("file"), "utf8")).toBe("x");
});

test("a file of any size goes up and comes down, as a link does", async () => {
  const content = Buffer.alloc(5_000_001, "0123456789abcdef");
  const counts = await upload("up/big", { mode: 0o750 }, content, { parents: true });
  expect(counts).toEqual({ bytes: content.length, entries: 1 });
  const { head, content: back } = await download("up/big");
  expect(head).toEqual({ type: "file", mode: 0o750, size: content.length, linkTarget: "" });
  expect(back.equals(content)).toBe(true);
  await upload("up/link", { type: "link", linkTarget: "../anywhere", size: 0 });
  expect(readlinkSync(at("up/link"))).toBe("../anywhere");
});

test("an upload replaces what is there at once, or leaves it", async () => {
  await write("d", "before");
  await upload("d", {}, Buffer.from("file now"));
  expect(await read("d")).toBe("file now");
  expect(await refusal(upload("d", { size: 4 }, Buffer.from("123")))).toBe(
    "invalid_argument BAD_ARCHIVE",
  );
  expect(await refusal(upload("d", { size: 2 }, Buffer.from("123")))).toBe(
    "invalid_argument BAD_ARCHIVE",
  );
  expect(await read("d")).toBe("file now");
  expect(staged()).toEqual([]);
});

test("a tree goes up as a tar and comes down as one that GNU tar reads", async () => {
  const source = join(there.home, "tree");
  mkdirSync(join(source, "sub/deep"), { recursive: true });
  writeFileSync(join(source, "a"), "a", { mode: 0o755 });
  writeFileSync(join(source, "sub/deep/b"), Buffer.alloc(70_000, "b"));
  symlinkSync("../a", join(source, "sub/l"));
  chmodSync(join(source, "sub/deep"), 0o500);
  const directory = { type: "directory", mode: 0o711, size: 0 };
  expect(await upload("t", directory, tarOf(source, "."))).toEqual({ bytes: 70_001, entries: 5 });
  expect(statSync(at("t")).mode & 0o777).toBe(0o711);
  expect(statSync(at("t/sub/deep")).mode & 0o777).toBe(0o500);
  expect(readlinkSync(at("t/sub/l"))).toBe("../a");

  const { head, content } = await download("t");
  expect(head).toMatchObject({ type: "directory", mode: 0o711 });
  const list = spawnSync("tar", ["-tf", "-"], { input: content, encoding: "utf8" });
  expect(list.stdout.trim().split("\n")).toEqual(["a", "sub/", "sub/deep/", "sub/deep/b", "sub/l"]);
  chmodSync(at("t/sub/deep"), 0o700);

  // Into what is there: other files stay.
  writeFileSync(at("t/other"), "stays");
  await upload("t", directory, tarOf(source, "a", "sub"), { merge: true });
  expect(await read("t/other")).toBe("stays");
  // In its place: they do not.
  await upload("t", directory, tarOf(source, "."));
  expect(existsSync(at("t/other"))).toBe(false);
  expect(staged()).toEqual([]);
});

test("hostile tars are refused and leave nothing", async () => {
  const { encodeHeader } = await import("../../src/sandbox/tar-header.ts");
  const entry = (fields: object, type = "0"): Uint8Array => {
    const base = { name: "x", mode: 0o644, size: 0, linkName: "", mtimeSeconds: 0 } as const;
    return encodeHeader({ ...base, type: type as "0", ...fields });
  };
  const end = new Uint8Array(1024);
  const outside = join(there.home, "secret");
  writeFileSync(outside, "secret");
  const hostile: Record<string, Uint8Array[]> = {
    absolute: [entry({ name: "/tmp/x" })],
    up: [entry({ name: "a/../../x" })],
    device: [entry({ name: "dev" }, "3")],
    fifo: [entry({ name: "fifo" }, "6")],
    hardLink: [entry({ name: "hard", linkName: outside }, "1")],
    throughLink: [entry({ name: "l", linkName: there.home }, "2"), entry({ name: "l/secret" })],
    garbage: [new Uint8Array(1024).fill(65)],
    cut: [entry({ name: "big", size: 4096 })],
    noEnd: [entry({ name: "x" })],
    halfAnEnd: [entry({ name: "x" }), new Uint8Array(512)],
    fileOverDirectory: [entry({ name: "a/b" }), entry({ name: "a" })],
    directoryOverFile: [entry({ name: "a" }), entry({ name: "a/" }, "5")],
    beneathFile: [entry({ name: "a" }), entry({ name: "a/b" })],
  };
  const isWhole = (name: string): boolean => ["cut", "noEnd", "halfAnEnd"].includes(name);
  for (const [name, parts] of Object.entries(hostile)) {
    const content = Buffer.concat(isWhole(name) ? parts : [...parts, end]);
    for (const rest of [{}, { merge: true, parents: true }]) {
      const sent = upload(`to-${name}`, { type: "directory", size: 0 }, content, rest);
      expect([name, await refusal(sent)]).toEqual([name, "invalid_argument BAD_ARCHIVE"]);
      expect(existsSync(at(`to-${name}/x`))).toBe(false);
    }
    expect(readFileSync(outside, "utf8")).toBe("secret");
  }
  expect(staged()).toEqual([]);
});

test("an upload that is given up leaves nothing", async () => {
  const abort = new AbortController();
  async function* items(): AsyncGenerator<Partial<FsUploadItem>> {
    const transfer = { type: "file", mode: 0o644, size: 1_000_000, linkTarget: "" };
    yield { claim, head: { path: "half", transfer, merge: false, parents: false } };
    yield { chunk: new Uint8Array(1000) };
    while (staged().length === 0) await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    yield { chunk: new Uint8Array(1000) };
  }
  const sent = there.plane.upload(FS_UPLOAD, items(), { signal: abort.signal });
  expect(await refusal(sent)).toBe("canceled");
  while (there.holder.heldClaims().length > 0 && staged().length > 0) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(existsSync(at("half"))).toBe(false);
  expect(lstatSync(there.root).isDirectory()).toBe(true);
});
