// Entries in and out of a lease, for whoever has no path on this host.

import { expect } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { EntryPart, ExecLease } from "../../src/provider/contract.ts";
import { BOUNDS } from "../../src/sandbox/layout.ts";
import { requireHost } from "../helpers/host.ts";
import { useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

async function* stream(...parts: EntryPart[]): AsyncGenerator<EntryPart> {
  yield* parts;
}

const directory = (path: string, mode = 0o755) =>
  ({ type: "directory", path, mode, size: 0 }) as const;
const file = (path: string, size: number) => ({ type: "file", path, mode: 0o640, size }) as const;
const bytes = (text: string): Uint8Array => Buffer.from(text);

host.describe("entries", () => {
  const bench = useEngine();
  const sh = async (lease: ExecLease, script: string): Promise<string> =>
    (await lease.invoke({ executable: "sh", arguments: ["-c", script] })).stdout;

  host.test("go in as they are, and come out as they are", async () => {
    const lease = await bench.open();
    const parts: EntryPart[] = [
      directory("", 0o710),
      file("f", 3),
      bytes("ab"),
      bytes("c"),
      { type: "link", path: "l", mode: 0o777, size: 1 },
      bytes("f"),
    ];
    await lease.putEntries(stream(...parts), "t");
    expect(await sh(lease, "stat -c '%a %F' t t/f; cat t/f; readlink t/l")).toBe(
      "710 directory\n640 regular file\nabcf\n",
    );
    const taken: EntryPart[] = [];
    const take = async (part: EntryPart): Promise<void> => void taken.push(part);
    await lease.takeEntries("t", { entry: take, content: take });
    const heads = taken.filter((part) => !(part instanceof Uint8Array));
    expect(heads).toContainEqual(directory("", 0o710));
    expect(heads).toContainEqual(file("f", 3));
  });

  host.test("that throw on the way leave nothing, and say why", async () => {
    const lease = await bench.open();
    await sh(lease, "mkdir t; echo kept > t/f");
    async function* broken(): AsyncGenerator<EntryPart> {
      yield directory("");
      yield file("f", 10);
      yield bytes("half");
      throw new Error("the source broke");
    }
    await expect(lease.putEntries(broken(), "t")).rejects.toThrow("the source broke");
    expect(await sh(lease, "ls -A . t; cat t/f")).toBe(".:\nt\n\nt:\nf\nkept\n");
  });

  host.test("beyond the bounds of a stream are refused", async () => {
    const lease = await bench.open();
    const wrong = [
      file(`${"d/".repeat(BOUNDS.depth)}f`, 0),
      file("x".repeat(BOUNDS.pathBytes), 0),
      { type: "link", path: "l", mode: 0o777, size: BOUNDS.pathBytes } as const,
    ];
    for (const head of wrong) {
      const put = lease.putEntries(stream(directory(""), head), "t");
      await expect(put).rejects.toThrow(expect.objectContaining({ reason: "ARCHIVE_BOUNDS" }));
    }
    expect(await sh(lease, "ls -A")).toBe("");
  });

  host.test("are removed with all that is beneath them, and no link is followed", async () => {
    const lease = await bench.open();
    await sh(
      lease,
      "mkdir -p a/b/c keep; chmod 0 a/b/c; echo 1 > keep/f; ln -s ../keep a/l; touch -- -f",
    );
    await lease.remove("a");
    await lease.remove("-f");
    await lease.remove("not/there");
    expect(await sh(lease, "ls -A; cat keep/f")).toBe("keep\n1\n");
    for (const path of ["/workspace", "/", "/usr/bin/env", "/etc/passwd"]) {
      await expect(lease.remove(path)).rejects.toThrow();
    }
    expect(await sh(lease, "test -e /usr/bin/env && ls -A")).toBe("keep\n");
  });

  host.test("end with their lease and with their signal", async () => {
    const lease = await bench.open();
    const stop = new AbortController();
    async function* endless(): AsyncGenerator<EntryPart> {
      yield directory("");
      yield file("f", 2 ** 40);
      for (;;) {
        yield new Uint8Array(1);
        await nextTurn();
      }
    }
    const put = lease.putEntries(endless(), "t", { signal: stop.signal });
    stop.abort();
    await expect(put).rejects.toThrow("cancelled");
    const other = lease.putEntries(endless(), "t").then(
      () => "done",
      () => "ended",
    );
    await lease.release();
    expect(await other).toBe("ended");
  });
});
