// The calls of fs.* as the tests of files make them.

import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { FS_DOWNLOAD, FS_READ_FILE, FS_UPLOAD, FS_WRITE_FILE } from "../../src/bridge/methods.ts";
import type { FsUploadItem, TransferHead } from "../../src/gen/messages.ts";
import { CLAIM, type Ground } from "./ground.ts";

const claim = CLAIM;

/** Calls on the worker of a test's ground, which is another one in each test. */
export function fileCalls(there: () => Ground) {
  const at = (path: string): string => join(there().root, path);
  const write = (path: string, text: string, rest: object = {}) =>
    there().plane.call(FS_WRITE_FILE, { claim, path, content: Buffer.from(text), ...rest });
  const read = async (path: string, rest: object = {}): Promise<string> => {
    const { content } = await there().plane.call(FS_READ_FILE, { claim, path, ...rest });
    return Buffer.from(content).toString();
  };

  /** Nothing that was staged is left anywhere. */
  function staged(): string[] {
    const names = readdirSync(there().root, { recursive: true }) as string[];
    return names.filter((name) => name.includes(".cprg-"));
  }

  async function download(path: string): Promise<{ head: TransferHead; content: Buffer }> {
    let head: TransferHead | undefined;
    const chunks: Uint8Array[] = [];
    for await (const item of there().plane.stream(FS_DOWNLOAD, { claim, path })) {
      head ??= item.head;
      if (item.chunk !== undefined) chunks.push(Uint8Array.from(item.chunk));
    }
    if (head === undefined) throw new Error("no head");
    return { head, content: Buffer.concat(chunks) };
  }

  function upload(
    path: string,
    transfer: Partial<TransferHead>,
    content: Uint8Array = new Uint8Array(),
    rest: object = {},
  ) {
    const whole = { type: "file", mode: 0o644, size: content.length, linkTarget: "", ...transfer };
    function* items(): Generator<Partial<FsUploadItem>> {
      yield { claim, head: { path, transfer: whole, merge: false, parents: false, ...rest } };
      for (let index = 0; index < content.length; index += 200_000) {
        yield { chunk: content.subarray(index, index + 200_000) };
      }
    }
    return there().plane.upload(FS_UPLOAD, items());
  }

  return { at, write, read, staged, download, upload };
}

/** A tar as GNU tar makes it. */
export function tarOf(directory: string, ...args: string[]): Uint8Array {
  const { stdout, status, stderr } = spawnSync("tar", ["-C", directory, "-cf", "-", ...args], {
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status !== 0) throw new Error(String(stderr));
  return stdout;
}
