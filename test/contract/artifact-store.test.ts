import { describe, expect, test } from "bun:test";
import { readdirSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { newId } from "../../src/core/ids.ts";
import { openArtifacts } from "../../src/store/artifact-files.ts";
import { memoryArtifacts } from "../../src/store/memory-artifacts.ts";
import { TempDir } from "../store/samples.ts";
import { artifactStoreContract, brokenSource, SMALL, source, textOf } from "./artifact-store.ts";

artifactStoreContract({
  name: "memory",
  open: async (bounds) => ({ store: memoryArtifacts(bounds), [Symbol.dispose]: () => undefined }),
});

artifactStoreContract({
  name: "files",
  open: async (bounds) => {
    const folder = new TempDir();
    const store = await openArtifacts(folder.join("artifacts"), { bounds });
    return { store, [Symbol.dispose]: () => folder[Symbol.dispose]() };
  },
});

describe("artifacts in files", () => {
  test("are private, named by ids, and there again after a restart", async () => {
    using folder = new TempDir();
    const path = folder.join("artifacts");
    const owner = { id: newId(), tenant: "a" };
    await (await openArtifacts(path)).keep(owner, [source("../x", "one"), source("y", "two")]);
    expect(readdirSync(path).sort()).toEqual([`${owner.id}.content`, `${owner.id}.index`]);
    for (const name of readdirSync(path))
      expect(statSync(`${path}/${name}`).mode & 0o777).toBe(0o600);
    expect(statSync(path).mode & 0o777).toBe(0o700);
    const again = await openArtifacts(path);
    expect(again.usedBytes).toBe(6);
    expect(await textOf(again, owner.id, "y")).toBe("two");
  });

  test("that a dead server left half are removed at start, as is what is beyond the bound", async () => {
    using folder = new TempDir();
    const path = folder.join("artifacts");
    const store = await openArtifacts(path);
    const [cut, whole, lost] = [newId(), newId(), newId()];
    for (const id of [cut, whole]) await store.keep({ id, tenant: "a" }, [source("a", "12345")]);
    truncateSync(`${path}/${cut}.content`, 2);
    writeFileSync(`${path}/${lost}.content`, "x");
    writeFileSync(`${path}/${lost}.index-part`, "{");
    const again = await openArtifacts(path);
    expect(again.jobs()).toEqual([whole]);
    expect(readdirSync(path).sort()).toEqual([`${whole}.content`, `${whole}.index`]);
    const small = await openArtifacts(path, { bounds: { ...SMALL, bytesMax: 4 } });
    expect([small.jobs(), readdirSync(path)]).toEqual([[], []]);
  });

  test("of which one file cannot be read leave nothing half", async () => {
    using folder = new TempDir();
    const path = folder.join("artifacts");
    const store = await openArtifacts(path);
    const owner = { id: newId(), tenant: "a" };
    const failed = await store
      .keep(owner, [source("a", "1"), brokenSource("b")])
      .catch(() => "failed");
    expect([failed, store.usedBytes, readdirSync(path)]).toEqual(["failed", 0, []]);
  });
});
