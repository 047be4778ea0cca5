import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EntrySink } from "../../../src/provider/contract.ts";
import { BytesBound } from "../../../src/sandbox/bytes-bound.ts";
import { writeTree } from "../../../src/sandbox/download.ts";

/** Longer than one loop may hold the event loop: the next entry gives way to it first. */
const LONG_MS = 20;

function work(milliseconds: number): void {
  const endMs = performance.now() + milliseconds;
  while (performance.now() < endMs) {}
}

/** Files beneath a directory that this process holds open. */
function heldBeneath(directory: string): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(directory) ? [path] : [];
    } catch {
      return []; // The descriptor of the listing itself.
    }
  });
}

test.each([
  ["an entry that gave way to others", 10],
  ["an entry", 0],
] as const)("a tree that is given up takes no more: %s", async (_name, size) => {
  const top = mkdtempSync(join(tmpdir(), "cprg-tree-"));
  try {
    const late = Promise.withResolvers<PromiseSettledResult<void>[]>();
    const fill = async (sink: EntrySink): Promise<void> => {
      await sink.entry({ path: "", type: "directory", mode: 0o755, size: 0 });
      work(LONG_MS);
      const entry = sink.entry({ path: "late", type: "file", mode: 0o644, size });
      void Promise.allSettled([entry]).then(late.resolve);
      throw new Error("stopped");
    };
    const bytes = new BytesBound(1000, "download");
    const written = writeTree(join(top, "tree"), { bytes, fill });
    expect(await written.catch((error: Error) => error.message)).toBe("stopped");
    expect(await late.promise).toMatchObject([{ reason: { code: "canceled" } }]);
    expect(heldBeneath(top)).toEqual([]);
    expect(readdirSync(top)).toEqual([]);
  } finally {
    rmSync(top, { recursive: true });
  }
});

test("a file that is open when its tree is given up is closed, and takes no more", async () => {
  const top = mkdtempSync(join(tmpdir(), "cprg-tree-"));
  try {
    const sinks: EntrySink[] = [];
    const fill = async (sink: EntrySink): Promise<void> => {
      sinks.push(sink);
      await sink.entry({ path: "", type: "file", mode: 0o644, size: 10 });
      throw new Error("stopped");
    };
    const bytes = new BytesBound(1000, "download");
    const written = writeTree(join(top, "file"), { bytes, fill });
    expect(await written.catch((error: Error) => error.message)).toBe("stopped");
    const more = sinks[0]?.content(Buffer.from("x"));
    expect(await more?.catch((error: unknown) => error)).toMatchObject({ code: "canceled" });
    expect(heldBeneath(top)).toEqual([]);
    expect(readdirSync(top)).toEqual([]);
  } finally {
    rmSync(top, { recursive: true });
  }
});
