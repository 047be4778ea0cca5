// fs.* on a host without a sandbox: what is in whose way, what a listing shows, archives that say a name
// twice, and what the end of a claim does to a transfer.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  FS_DOWNLOAD,
  FS_LIST_DIR,
  FS_REMOVE,
  FS_RENAME,
  FS_STAT,
  FS_UPLOAD,
  WORKER_RELEASE,
} from "../../src/bridge/methods.ts";
import type { FsUploadItem } from "../../src/gen/messages.ts";
import { fileCalls, tarOf } from "./file-calls.ts";
import { CLAIM, type Ground, ground, refusal, until } from "./ground.ts";

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

/** Two blocks of zeros. */
const END = new Uint8Array(1024);

/** An archive without its end, to which another may be put. */
function withoutEnd(archive: Uint8Array): Uint8Array {
  let length = archive.length;
  while (length >= 512 && archive.subarray(length - 512, length).every((byte) => byte === 0)) {
    length -= 512;
  }
  return archive.subarray(0, length);
}

test("root and home themselves are neither removed, renamed nor replaced", async () => {
  mkdirSync(at("d"));
  const directory = { type: "directory", size: 0 };
  for (const path of ["", ".", "d/..", there.root, `${there.home}/`]) {
    const remove = there.plane.call(FS_REMOVE, { claim, path, recursive: true });
    const from = there.plane.call(FS_RENAME, { claim, from: path, to: "x" });
    const to = there.plane.call(FS_RENAME, { claim, from: "d", to: path });
    const replace = upload(path, directory, END);
    for (const call of [remove, from, to, replace]) {
      expect([path, await refusal(call)]).toEqual([path, "failed_precondition NO_NAME"]);
    }
  }
  const { stat } = await there.plane.call(FS_STAT, { claim, path: "" });
  expect(stat?.type).toBe("directory");
  const { entries } = await there.plane.call(FS_LIST_DIR, { claim, path: "" });
  expect(entries.map(({ name }) => name)).toEqual(["d"]);
  // Merged into, it stays.
  await upload("", directory, tarOf(there.root, "d"), { merge: true });
  expect(existsSync(at("d"))).toBe(true);
});

test("what is in the way is told by what it is", async () => {
  for (const name of ["full/in", "empty"]) mkdirSync(at(name), { recursive: true });
  for (const name of ["file", "other"]) writeFileSync(at(name), name);
  symlinkSync("nowhere", at("link"));
  const rename = (from: string, to: string): Promise<string> =>
    refusal(there.plane.call(FS_RENAME, { claim, from, to }));
  const put = (path: string, type: string): Promise<string> =>
    refusal(
      upload(path, { type, size: 0, linkTarget: "x" }, type === "directory" ? END : undefined),
    );
  // A rename onto a directory, or of one onto anything.
  for (const [from, to] of [
    ["file", "empty"],
    ["link", "full"],
    ["empty", "full"],
    ["full", "empty"],
    ["empty", "file"],
    ["empty", "link"],
  ] as const) {
    expect([from, to, await rename(from, to)]).toEqual([from, to, "already_exists"]);
  }
  expect(await rename("full", "full/in/x")).toBe("failed_precondition");
  // A directory onto what is none; a file or a link onto a directory.
  expect(await put("file", "directory")).toBe("already_exists");
  expect(await put("full", "file")).toBe("failed_precondition IS_DIRECTORY");
  expect(await put("empty", "link")).toBe("failed_precondition IS_DIRECTORY");
  expect(await refusal(write("full", "x"))).toBe("failed_precondition IS_DIRECTORY");
  expect(readdirSync(there.root).sort()).toEqual(["empty", "file", "full", "link", "other"]);
  // And what gives way: a file to a file or a link, a link to either.
  expect(await rename("file", "other")).toBe("served");
  expect(await rename("other", "link")).toBe("served");
  expect(readFileSync(at("link"), "utf8")).toBe("file");
  expect(await put("full", "directory")).toBe("served");
  expect(readdirSync(at("full"))).toEqual([]);
});

test("a listing hides what is being made and names that are no UTF-8, and fits in an answer", async () => {
  mkdirSync(at("d"));
  for (const name of [".cprg-stage-1", "b", "ä", "\u{fffd}"]) writeFileSync(at(`d/${name}`), "");
  writeFileSync(Buffer.concat([Buffer.from(at("d/x")), Buffer.of(0xff)]), "");
  const list = async (path: string, after = "") =>
    await there.plane.call(FS_LIST_DIR, { claim, path, after });
  const { entries, more } = await list("d");
  expect([entries.map(({ name }) => name), more]).toEqual([["b", "ä", "\u{fffd}"], false]);
  const { content } = await download("d");
  const names = spawnSync("tar", ["-tf", "-", "--quoting-style=literal"], { input: content });
  expect(String(names.stdout)).not.toContain("stage");

  mkdirSync(at("many"));
  const target = "t".repeat(4000);
  for (let index = 0; index < 1200; index += 1) symlinkSync(target, at(`many/l${1000 + index}`));
  const first = await list("many");
  expect(first.more).toBe(true);
  const rest = await list("many", first.entries.at(-1)?.name);
  expect([first.entries.length + rest.entries.length, rest.more]).toEqual([1200, false]);
});

test("a name that comes again replaces, and a directory may come after what is in it", async () => {
  const directory = join(there.home, "made");
  mkdirSync(join(directory, "d"), { recursive: true });
  const tar = (text: string): Uint8Array => {
    writeFileSync(join(directory, "d/f"), text);
    return tarOf(directory, "d/f");
  };
  const pieces = [tar("one"), tar("three")];
  chmodSync(join(directory, "d"), 0o700);
  const all = [...pieces, tarOf(directory, "--no-recursion", "d")].map(withoutEnd);
  const content = Buffer.concat([...all, END]);
  for (const rest of [{}, { merge: true }]) {
    await upload("t", { type: "directory", size: 0 }, content, rest);
    expect(await read("t/d/f")).toBe("three");
    expect(statSync(at("t/d")).mode & 0o777).toBe(0o700);
  }
  await upload("empty", { type: "directory", size: 0 }, END);
  expect(readdirSync(at("empty"))).toEqual([]);
});

test("a merge moves everything or nothing", async () => {
  const source = join(there.home, "tree");
  mkdirSync(join(source, "a"), { recursive: true });
  mkdirSync(join(source, "z"));
  for (const name of ["a/f", "m"]) writeFileSync(join(source, name), "new");
  mkdirSync(at("t"));
  const merge = (): Promise<string> =>
    refusal(upload("t", { type: "directory", size: 0 }, tarOf(source, "."), { merge: true }));
  writeFileSync(at("t/z"), "in the way");
  expect(await merge()).toBe("already_exists");
  expect(readdirSync(at("t"))).toEqual(["z"]);
  mkdirSync(at("t/sub"));
  spawnSync("mv", [at("t/z"), at("t/sub/z")]);
  mkdirSync(at("t/m"));
  expect(await merge()).toBe("failed_precondition IS_DIRECTORY");
  expect(readdirSync(at("t")).sort()).toEqual(["m", "sub"]);
  spawnSync("rmdir", [at("t/m")]);
  expect(await merge()).toBe("served");
  expect(readdirSync(at("t")).sort()).toEqual(["a", "m", "sub", "z"]);
  expect(staged()).toEqual([]);
});

test("an upload that waits ends with its claim, and leaves nothing", async () => {
  let isHeadSent = false;
  async function* items(): AsyncGenerator<Partial<FsUploadItem>> {
    const transfer = { type: "file", mode: 0o644, size: 10, linkTarget: "" };
    yield { claim, head: { path: "half", transfer, merge: false, parents: false } };
    isHeadSent = true;
    await new Promise(() => undefined);
  }
  const sent = refusal(there.plane.upload(FS_UPLOAD, items()));
  await until(() => isHeadSent && staged().length > 0);
  await there.plane.call(WORKER_RELEASE, { claim });
  expect(await sent).toBe("failed_precondition NOT_CLAIMED");
  expect(staged()).toEqual([]);
});

test("a download that nobody reads ends with its claim", async () => {
  writeFileSync(at("big"), Buffer.alloc(4 * 1024 * 1024));
  const call = there.plane.stream(FS_DOWNLOAD, { claim, path: "big" });
  const reader = call[Symbol.asyncIterator]();
  await reader.next();
  await there.plane.call(WORKER_RELEASE, { claim });
  expect((await call.ended).error).toMatchObject({
    code: "failed_precondition",
    reason: "NOT_CLAIMED",
  });
});
