import { describe, expect, test } from "bun:test";
import type { EntryHead, EntryPart } from "../../../src/provider/contract.ts";
import { BLOCK_BYTES, encodeHeader } from "../../../src/sandbox/tar-header.ts";
import { readTar } from "../../../src/sandbox/tar-reader.ts";
import { writeTar } from "../../../src/sandbox/tar-writer.ts";
import { randomFrom } from "../record/random.ts";

interface Thing {
  readonly head: EntryHead;
  readonly content: Buffer;
}

async function* partsOf(things: readonly Thing[], piece = 1000): AsyncGenerator<EntryPart> {
  for (const { head, content } of things) {
    yield head;
    for (let at = 0; at < content.length; at += piece) yield content.subarray(at, at + piece);
  }
}

async function collect(parts: AsyncIterable<EntryPart>): Promise<Thing[]> {
  const things: { head: EntryHead; content: Buffer }[] = [];
  for await (const part of parts) {
    const last = things.at(-1);
    if (!(part instanceof Uint8Array)) things.push({ head: part, content: Buffer.alloc(0) });
    else if (last !== undefined) last.content = Buffer.concat([last.content, part]);
  }
  return things;
}

async function* chunked(stream: AsyncIterable<Uint8Array>, size: number) {
  const bytes: Uint8Array[] = [];
  for await (const piece of stream) bytes.push(piece);
  const all = Buffer.concat(bytes);
  for (let at = 0; at < all.length; at += size) yield all.subarray(at, at + size);
}

const directory = (path: string, mode = 0o755): Thing => ({
  head: { type: "directory", path, mode, size: 0 },
  content: Buffer.alloc(0),
});
const file = (path: string, content: Buffer, mode = 0o644): Thing => ({
  head: { type: "file", path, mode, size: content.length },
  content,
});
const link = (path: string, target: string): Thing => ({
  head: { type: "link", path, mode: 0o777, size: Buffer.byteLength(target) },
  content: Buffer.from(target),
});

describe("a tree through tar and back", () => {
  const options = { name: "single", mtimeSeconds: 1 };

  test.each([1, 7, 511, 512, 513, 100_000])("in chunks of %d bytes", async (size) => {
    const random = randomFrom(size);
    const things = [
      directory("", 0o700),
      directory("d"),
      ...[0, 1, 511, 512, 513, 70_000].map((length, index) =>
        file(`d/f${index}`, Buffer.alloc(length, random(256)), 0o600 + index),
      ),
      directory(`d/${"n".repeat(200)}`, 0o711),
      file(`d/${"n".repeat(200)}/é😀\u202e`, Buffer.from("x")),
      link("l", "d"),
      link(`m${"é".repeat(60)}`, `d/${"n".repeat(200)}`),
      file("new\nline", Buffer.alloc(0)),
    ];
    const back = await collect(readTar(chunked(writeTar(partsOf(things), options), size)));
    expect(back).toEqual(things);
  });

  test("a single file comes under its name", async () => {
    const single = file("", Buffer.from("abc"), 0o640);
    const back = await collect(readTar(writeTar(partsOf([single]), options)));
    expect(back).toEqual([file("single", Buffer.from("abc"), 0o640)]);
  });

  test("an entry that lies in no directory before it is refused", async () => {
    for (const things of [
      [file("x", Buffer.alloc(0))],
      [directory(""), file("d/x", Buffer.alloc(0))],
      [directory(""), link("d", "/etc"), file("d/x", Buffer.alloc(0))],
      [directory(""), directory("d"), file("x", Buffer.alloc(0)), file("d/y", Buffer.alloc(0))],
      [directory(""), directory("")],
    ]) {
      await expect(
        collect(readTar(writeTar(partsOf(things), options), { areLinksFree: true })),
      ).rejects.toThrow("out of place");
    }
  });
});

test("directories are remembered up to a bound, and no further", async () => {
  let made = 0;
  async function* endless(): AsyncGenerator<Uint8Array> {
    for (;;) {
      made += 1;
      const name = `${made}-`.padEnd(90, "d");
      yield encodeHeader({ name, mode: 0o755, size: 0, type: "5", linkName: "", mtimeSeconds: 0 });
    }
  }
  const read = readTar(endless(), { directoriesBytesMax: 10_000 });
  await expect(collectCount(read)).rejects.toThrow("too many directories");
  expect(made).toBeLessThanOrEqual(1 + 10_000 / 90);
});

async function collectCount(parts: AsyncIterable<EntryPart>): Promise<number> {
  let count = 0;
  for await (const _ of parts) count += 1;
  return count;
}

test("a tar that holds nothing is refused as that", async () => {
  async function* nothing(): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(2 * BLOCK_BYTES);
  }
  await expect(collectCount(readTar(nothing()))).rejects.toThrow("it holds nothing");
});
