// What every ArtifactStore must do. Run by artifact-store.test.ts against each.

import { describe, expect, test } from "bun:test";
import { newId } from "../../src/core/ids.ts";
import type { ArtifactBounds, ArtifactSource, ArtifactStore } from "../../src/store/artifacts.ts";

/** One kind of store. */
export interface ArtifactKind {
  readonly name: string;
  /** A fresh, empty store. Disposing it removes what it kept. */
  open(bounds: ArtifactBounds): Promise<{ store: ArtifactStore } & Disposable>;
}

export const SMALL: ArtifactBounds = {
  jobBytesMax: 100,
  jobFilesMax: 4,
  bytesMax: 250,
  jobsMax: 5,
};

export function source(path: string, content: string | Uint8Array, mode = 0o644): ArtifactSource {
  const bytes = Buffer.from(content as string);
  return {
    path,
    size: bytes.length,
    mode,
    async *read() {
      for (const byte of bytes) yield Uint8Array.of(byte);
    },
  };
}

/** A file that cannot be read to its end. */
export function brokenSource(path: string): ArtifactSource {
  return {
    path,
    size: 2,
    mode: 0o644,
    async *read() {
      yield Uint8Array.of(1);
      throw new Error("gone");
    },
  };
}

export async function textOf(store: ArtifactStore, id: string, path: string) {
  const file = await store.read(id, path);
  if (file === null) return null;
  return Buffer.concat(await Array.fromAsync(file.bytes)).toString();
}

/** Registers the suite for one kind. */
export function artifactStoreContract({ name, open }: ArtifactKind): void {
  describe(`ArtifactStore of ${name}`, () => {
    describeKeeping(open);
    describeRoom(open);
  });
}

function describeKeeping(open: ArtifactKind["open"]): void {
  test("keeps the files of a job, whatever their names", async () => {
    using opened = await open(SMALL);
    const { store } = opened;
    const owner = { id: newId(), tenant: "a" };
    const names = ["../../x", "a/b", "__proto__", "\ud800"];
    await store.keep(
      owner,
      names.map((path, index) => source(path, path.slice(index), 0o4751)),
    );
    const kept = await store.list(owner.id);
    expect(kept?.files.map(({ path }) => path)).toEqual(names);
    expect(kept?.files[1]).toEqual({ path: "a/b", size: 2, mode: 0o751 });
    expect(kept?.problem).toBeNull();
    expect(await textOf(store, owner.id, "../../x")).toBe("../../x");
    expect(await textOf(store, owner.id, "a/b")).toBe("/b");
    expect(await store.read(owner.id, "a")).toBeNull();
    expect(await store.read(newId(), "a/b")).toBeNull();
    expect(store.jobs()).toEqual([owner.id]);
  });

  test("keeps nothing of a job without files, and all or none of others", async () => {
    using opened = await open(SMALL);
    const { store } = opened;
    const [none, large, many, broken] = ["", "", "", ""].map(() => ({ id: newId(), tenant: "a" }));
    if (!none || !large || !many || !broken) throw new Error("four owners");
    await store.keep(none, []);
    expect(await store.list(none.id)).toBeNull();
    await store.keep(large, [source("a", "x"), source("b", "x".repeat(100))]);
    const problem = "101 bytes, at most 100 are kept";
    expect(await store.list(large.id)).toEqual({ files: [], problem });
    await store.keep(
      many,
      Array.from({ length: 5 }, (_, n) => source(`${n}`, "")),
    );
    expect((await store.list(many.id))?.problem).toBe("5 files, at most 4 are kept");
    const failed = await store.keep(broken, [source("a", "1"), brokenSource("b")]).catch(String);
    expect(failed).toBe("Error: gone");
    expect(await store.list(broken.id)).toBeNull();
    await store.keepNone(broken, "gone");
    expect(await store.list(broken.id)).toEqual({ files: [], problem: "gone" });
    expect(store.usedBytes).toBe(0);
  });

  test("forgets what it is told to", async () => {
    using opened = await open(SMALL);
    const { store } = opened;
    const owners = [newId(), newId()].map((id) => ({ id, tenant: "a" }));
    for (const owner of owners) await store.keep(owner, [source("a", "123")]);
    await store.remove([owners[0]?.id ?? "", newId()]);
    expect(await store.list(owners[0]?.id ?? "")).toBeNull();
    expect(await textOf(store, owners[1]?.id ?? "", "a")).toBe("123");
    expect(store.usedBytes).toBe(3);
  });
}

function describeRoom(open: ArtifactKind["open"]): void {
  test("makes room at the cost of who has most, oldest first", async () => {
    using opened = await open(SMALL);
    const { store } = opened;
    const quiet = { id: newId(), tenant: "quiet" };
    await store.keep(quiet, [source("a", "x".repeat(60))]);
    const loud = [newId(), newId(), newId()].map((id) => ({ id, tenant: "loud" }));
    for (const owner of loud) await store.keep(owner, [source("a", "x".repeat(90))]);
    expect(store.jobs()).toEqual([quiet.id, loud[1]?.id ?? "", loud[2]?.id ?? ""]);
    expect(store.usedBytes).toBe(240);
    expect(await store.list(loud[0]?.id ?? "")).toBeNull();
  });

  test("keeps no more jobs than its bound", async () => {
    using opened = await open(SMALL);
    const owners = Array.from({ length: 8 }, () => ({ id: newId(), tenant: "a" }));
    for (const owner of owners) await opened.store.keepNone(owner, "x");
    expect(opened.store.jobs()).toEqual(owners.slice(3).map(({ id }) => id));
  });
}
