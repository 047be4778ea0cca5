import { describe, expect, test } from "bun:test";
import type { EntryHead } from "../../../src/provider/contract.ts";
import { decodeArchive, encodeEnd, encodeEntry } from "../../../src/sandbox/archive.ts";

async function* chunks(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function decode(bytes: Uint8Array, size = 7): Promise<[EntryHead, string][]> {
  const found: [EntryHead, string][] = [];
  await decodeArchive(chunks(bytes, size), {
    entry: async (head) => {
      found.push([head, ""]);
    },
    content: async (piece) => {
      const last = found.at(-1);
      if (last !== undefined) last[1] += Buffer.from(piece).toString("latin1");
    },
  });
  return found.map(([head, text]) => [head, Buffer.from(text, "latin1").toString()]);
}

const file = (path: string, text: string): Uint8Array[] => [
  encodeEntry({ type: "file", mode: 0o4755, path, size: text.length }),
  Buffer.from(text),
];
const refusal = (bytes: Uint8Array): Promise<unknown> =>
  decode(bytes).then(
    () => "decoded",
    (error: { code: string }) => error.code,
  );

describe("decodeArchive()", () => {
  const whole = Buffer.concat([
    encodeEntry({ type: "directory", mode: 0o700, path: "ü", size: 0 }),
    ...file("ü/a b", "content of a file"),
    encodeEntry({ type: "link", mode: 0o777, path: "l", size: 4 }),
    Buffer.from("ü/x"),
    encodeEnd(),
  ]);

  test("reads back what was encoded, however it is cut into chunks", async () => {
    for (const size of [1, 2, 23, 24, 1000]) {
      expect(await decode(whole, size)).toEqual([
        [{ type: "directory", mode: 0o700, path: "ü", size: 0 }, ""],
        // Set-user-id and its like never pass.
        [{ type: "file", mode: 0o755, path: "ü/a b", size: 17 }, "content of a file"],
        [{ type: "link", mode: 0o777, path: "l", size: 4 }, "ü/x"],
      ]);
    }
  });

  test("refuses a stream that is cut anywhere", async () => {
    for (let length = 0; length < whole.length; length += 1) {
      expect(await refusal(whole.subarray(0, length))).toBe("data_loss");
    }
  });

  test("refuses paths that are not plain", async () => {
    for (const path of [
      "/a",
      "../a",
      "a/../b",
      "a//b",
      "a/",
      "./a",
      "a\0b",
      `${"x/".repeat(64)}x`,
    ]) {
      expect([path, await refusal(Buffer.concat([...file(path, "x"), encodeEnd()]))]).toEqual([
        path,
        "data_loss",
      ]);
    }
  });

  test("refuses what is no entry", async () => {
    const bad = (change: (view: DataView) => void): Promise<unknown> => {
      const head = encodeEntry({ type: "file", mode: 0o644, path: "a", size: 0 });
      change(new DataView(head.buffer));
      return refusal(Buffer.concat([head, encodeEnd()]));
    };
    expect(await bad(() => undefined)).toBe("decoded");
    expect(await bad((view) => view.setUint32(0, 1, true))).toBe("data_loss");
    expect(await bad((view) => view.setUint32(4, 9, true))).toBe("data_loss");
    expect(await bad((view) => view.setUint32(12, 5000, true))).toBe("data_loss");
    const link = encodeEntry({ type: "link", mode: 0o777, path: "l", size: 1 << 20 });
    expect(await refusal(Buffer.concat([link, encodeEnd()]))).toBe("data_loss");
    const badName = encodeEntry({ type: "file", mode: 0o644, path: "ab", size: 0 });
    badName[24] = 0xff;
    expect(await refusal(Buffer.concat([badName, encodeEnd()]))).toBe("data_loss");
  });
});
