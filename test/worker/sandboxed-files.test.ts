// fs.* in a sandbox keeps the rules that it keeps on a host: what is in whose way, root and home, merges,
// archives that say a name twice, listings.

import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  FS_LIST_DIR,
  FS_MAKE_DIR,
  FS_READ_FILE,
  FS_REMOVE,
  FS_RENAME,
  FS_STAT,
  FS_UPLOAD,
  FS_WRITE_FILE,
} from "../../src/bridge/methods.ts";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import type { FsUploadItem } from "../../src/gen/messages.ts";
import { encodeHeader } from "../../src/sandbox/tar-header.ts";
import { requireHost } from "../helpers/host.ts";
import { refusal } from "./ground.ts";
import { type Plane, startPlane, startWorkerProcess, type WorkerProcess } from "./process.ts";

const END = new Uint8Array(1024);

interface TarEntry {
  readonly name: string;
  readonly text?: string;
  readonly mode?: number;
}

/** An archive of files, and of directories, whose names end with a slash. */
function tar(...entries: readonly TarEntry[]): Uint8Array {
  const parts = entries.flatMap(({ name, text = "", mode = 0o755 }) => {
    const content = Buffer.from(text);
    const type = name.endsWith("/") ? "5" : "0";
    const fields = { name, mode, size: content.length, linkName: "", mtimeSeconds: 0 } as const;
    const padding = new Uint8Array((512 - (content.length % 512)) % 512);
    return [encodeHeader({ ...fields, type }), content, padding];
  });
  return Buffer.concat([...parts, END]);
}

requireHost({ sandbox: true }).describe("files of a claim in a sandbox", () => {
  let plane: Plane;
  let worker: WorkerProcess;
  let link: ClaimLink;

  beforeAll(async () => {
    plane = await startPlane();
    worker = startWorkerProcess(plane.port, { isIsolated: true });
    link = await plane.registry.claim({ taskId: "t1", epoch: 1 });
  });

  afterAll(async () => {
    await link.release();
    await worker.end();
    await plane.close();
  });

  const write = (path: string, text: string) =>
    link.mux.call(FS_WRITE_FILE, { claim: link.claim, path, content: Buffer.from(text) });
  const read = async (path: string): Promise<string> => {
    const { content } = await link.mux.call(FS_READ_FILE, { claim: link.claim, path });
    return Buffer.from(content).toString();
  };
  const make = (path: string) =>
    link.mux.call(FS_MAKE_DIR, { claim: link.claim, path, parents: true });
  const list = async (path: string): Promise<string[]> => {
    const { entries } = await link.mux.call(FS_LIST_DIR, { claim: link.claim, path });
    return entries.map(({ name }) => name);
  };
  const put = (path: string, type: string, content: Uint8Array, merge = false): Promise<string> => {
    const size = type === "file" ? content.length : 0;
    const transfer = { type, size, linkTarget: type === "link" ? "x" : "" };
    function* items(): Generator<Partial<FsUploadItem>> {
      yield { claim: link.claim, head: { path, transfer, merge, parents: false } };
      if (content.length > 0) yield { chunk: content };
    }
    return refusal(link.mux.upload(FS_UPLOAD, items()));
  };
  const none = new Uint8Array();

  test("root and home themselves are neither removed, renamed nor replaced", async () => {
    await make("d");
    for (const path of ["", ".", "d/..", "/home/agent"]) {
      const { claim } = link;
      const calls = [
        refusal(link.mux.call(FS_REMOVE, { claim, path, recursive: true })),
        refusal(link.mux.call(FS_RENAME, { claim, from: path, to: "x" })),
        refusal(link.mux.call(FS_RENAME, { claim, from: "d", to: path })),
        put(path, "directory", END),
      ];
      for (const said of await Promise.all(calls)) {
        expect([path, said]).toEqual([path, "failed_precondition NO_NAME"]);
      }
    }
    const { stat } = await link.mux.call(FS_STAT, { claim: link.claim, path: "" });
    expect(stat?.type).toBe("directory");
  });

  test("what is in the way is told by what it is", async () => {
    await make("way/full/in");
    await make("way/empty");
    await write("way/file", "x");
    const rename = (from: string, to: string): Promise<string> =>
      refusal(
        link.mux.call(FS_RENAME, { claim: link.claim, from: `way/${from}`, to: `way/${to}` }),
      );
    expect(await rename("file", "empty")).toBe("already_exists");
    expect(await rename("empty", "full")).toBe("already_exists");
    expect(await rename("full", "empty")).toBe("already_exists");
    expect(await rename("empty", "file")).toBe("already_exists");
    expect(await put("way/file", "directory", END)).toBe("already_exists");
    expect(await put("way/full", "file", none)).toBe("failed_precondition IS_DIRECTORY");
    expect(await put("way/empty", "link", none)).toBe("failed_precondition IS_DIRECTORY");
    expect(await list("way")).toEqual(["empty", "file", "full"]);
    expect(await put("way/full", "directory", END)).toBe("served");
    expect(await list("way/full")).toEqual([]);
  });

  test("a name that comes again replaces; what is no directory is none later", async () => {
    const twice = tar(
      { name: "d/f", text: "one" },
      { name: "d/f", text: "two" },
      { name: "d/", mode: 0o700 },
    );
    expect(await put("twice", "directory", twice)).toBe("served");
    expect(await read("twice/d/f")).toBe("two");
    const { stat } = await link.mux.call(FS_STAT, { claim: link.claim, path: "twice/d" });
    expect(stat?.mode).toBe(0o700);
    const bad = "invalid_argument BAD_ARCHIVE";
    expect(await put("bad", "directory", tar({ name: "a" }, { name: "a/b" }))).toBe(bad);
    expect(await put("bad", "directory", tar({ name: "a" }, { name: "a/" }))).toBe(bad);
    expect(await put("bad", "directory", tar({ name: "../a" }))).toBe(bad);
    expect(await put("bad", "directory", tar({ name: "a" }).subarray(0, -512))).toBe(bad);
    expect((await list(".")).filter((name) => name === "bad" || name.startsWith("."))).toEqual([]);
  });

  test("a merge moves everything or nothing, and listings hide what is being made", async () => {
    await make("m/z");
    const tree = tar({ name: "a/" }, { name: "a/f", text: "new" }, { name: "z", text: "new" });
    expect(await put("m", "directory", tree, true)).toBe("failed_precondition IS_DIRECTORY");
    expect(await list("m")).toEqual(["z"]);
    await link.mux.call(FS_RENAME, { claim: link.claim, from: "m/z", to: "m/other" });
    expect(await put("m", "directory", tree, true)).toBe("served");
    expect(await list("m")).toEqual(["a", "other", "z"]);
    expect(await read("m/a/f")).toBe("new");
    await write("m/.cprg-stage-1", "x");
    expect(await list("m")).toEqual(["a", "other", "z"]);
  });
});
