import { describe, expect, test } from "bun:test";
import { generateKeyPairSync, sign } from "node:crypto";
import {
  keyFingerprint,
  LINE_BYTES_MAX,
  sealLine,
  splitSeal,
  toHex,
} from "../../../src/core/chain.ts";
import type { EventDraft } from "../../../src/core/event.ts";
import { parsePublicKey, verifyExport } from "../../../src/core/verify.ts";
import { sampleDrafts, sampleKey, sampleLines, signedRows, toFile } from "./sample-export.ts";

const key = sampleKey();
const drafts = sampleDrafts(6);
const lines = sampleLines({ drafts, key });
const file = toFile(lines);
const check = (bytes: Uint8Array | AsyncIterable<Uint8Array>) => verifyExport(bytes, key);

/** How a list of lines is judged: where and why it is refused. */
async function refusal(changed: readonly string[]) {
  const result = await check(toFile(changed));
  if (result.ok) throw new Error("it was accepted");
  return result;
}

async function* chunks(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

describe("verifyExport() accepts", () => {
  test("a complete export", async () => {
    expect(await check(file)).toEqual({
      ok: true,
      subject: "job:1",
      count: 6,
      complete: true,
      head: JSON.parse(lines[5] ?? "").hash,
      previous: "0".repeat(64),
      at: "2026-01-01T00:00:00.000Z",
    });
  });

  test("an incomplete and an empty one", async () => {
    const open = sampleLines({ drafts: drafts.slice(0, 3), key });
    expect(await check(toFile(open))).toMatchObject({ ok: true, count: 3, complete: false });
    const empty = sampleLines({ drafts: [], key, subject: "exec:x" });
    expect(await check(toFile(empty))).toMatchObject({ ok: true, count: 0, subject: "exec:x" });
  });

  test.each([1, 2, 7, 100, 1000, 1_000_000])("chunks of %d bytes", async (size) => {
    expect(await check(chunks(file, size))).toMatchObject({ ok: true, count: 6 });
  });

  test("rows with every kind of text, and the longest line there may be", async () => {
    const texts = ["\0", "\ud800", "\u2028", '"}\n{"kind":"seal",', "\ufeff", "x".repeat(100_000)];
    const rows = texts.map((data): EventDraft => ({ kind: "stdout", data }));
    expect(await check(toFile(sampleLines({ drafts: rows, key })))).toMatchObject({ count: 6 });
    const overhead = (sampleLines({ drafts: [{ kind: "stdout", data: "" }], key })[0] ?? "").length;
    const longest = "x".repeat(LINE_BYTES_MAX - overhead);
    const long = toFile(sampleLines({ drafts: [{ kind: "stdout", data: longest }], key }));
    expect(await check(long)).toMatchObject({ ok: true });
    expect(await check(chunks(long, 60_000))).toMatchObject({ ok: true });
    const longer = toFile(sampleLines({ drafts: [{ kind: "stdout", data: `${longest}x` }], key }));
    expect(await check(longer)).toMatchObject({ ok: false, line: 1 });
  });
});

describe("verifyExport() refuses", () => {
  test("every byte changed, removed or added, in any chunks", async () => {
    for (let at = 0; at < file.length; at += 1) {
      const changed = Buffer.from(file);
      changed[at] = (file[at] ?? 0) ^ (1 + (at % 255));
      const removed = Buffer.concat([file.subarray(0, at), file.subarray(at + 1)]);
      const added = Buffer.concat([file.subarray(0, at), Buffer.from([97]), file.subarray(at)]);
      for (const bytes of [changed, removed, added]) {
        const result = await check(at % 2 === 0 ? bytes : chunks(bytes, 50));
        expect([at, result.ok]).toEqual([at, false]);
      }
    }
  });

  test("a byte changed, naming the line", async () => {
    for (let index = 1; index < 6; index += 1) {
      const changed = lines.with(index, (lines[index] ?? "").replace('"data":', '"dat4":'));
      expect(await refusal(changed)).toMatchObject({ line: index + 1 });
      const text = lines.with(index, (lines[index] ?? "").replace("2026", "2027"));
      expect(await refusal(text)).toEqual({
        ok: false,
        line: index + 1,
        seq: index + 1,
        problem: `the hash does not follow from the row before: ${
          index === 1 ? "this row or row 1" : "this row"
        } was changed`,
      });
    }
    const first = lines.with(0, (lines[0] ?? "").replace("2026", "2027"));
    expect(await refusal(first)).toMatchObject({ line: 1, seq: 1 });
  });

  test("a tail that was cut at any byte", async () => {
    for (let length = 0; length < file.length; length += 1) {
      const result = await check(file.subarray(0, length));
      expect([length, result.ok]).toEqual([length, false]);
    }
    expect(await check(file.subarray(0, -1))).toMatchObject({ line: 7 });
    expect(await refusal(lines.slice(0, -1))).toMatchObject({
      line: 7,
      problem: expect.stringContaining("tail is missing"),
    });
    expect(await check(new Uint8Array())).toMatchObject({ line: 1 });
  });

  test("rows that were swapped, dropped, doubled or moved here from another log", async () => {
    for (let index = 0; index < 6; index += 1) {
      const [a, b] = [lines[index] ?? "", lines[index + 1] ?? ""];
      await refusal(lines.with(index, b).with(index + 1, a));
      await refusal(lines.toSpliced(index, 1));
      expect(await refusal(lines.toSpliced(index, 0, a))).toMatchObject({ line: index + 2 });
    }
    // Rows cut from the end while the seal is kept.
    const cut = [...lines.slice(0, 3), lines.at(-1) ?? ""];
    expect(await refusal(cut)).toMatchObject({
      line: 4,
      problem: "the seal is over 6 rows, but there are 3",
    });
    const other = sampleLines({ drafts, key, subject: "job:2" });
    for (let index = 0; index < 7; index += 1) {
      await refusal(lines.with(index, other[index] ?? ""));
    }
    expect(await refusal([...other.slice(0, -1), lines.at(-1) ?? ""])).toMatchObject({ line: 1 });
  });

  test("a chain that was computed anew without the key", async () => {
    const thief = sampleKey();
    const altered = drafts.with(2, { kind: "stdout", data: "altered" });
    // Signed by another key that says so, or claims to be the right one.
    expect(await refusal(sampleLines({ drafts: altered, key: thief }))).toMatchObject({
      line: 7,
      problem: `sealed with key ${keyFingerprint(thief.publicKey)}, but the key given is ${keyFingerprint(key.publicKey)}`,
    });
    const lie = { key: keyFingerprint(key.publicKey) };
    expect(await refusal(sampleLines({ drafts: altered, key: thief, lie }))).toMatchObject({
      line: 7,
      problem: expect.stringContaining("signature does not hold"),
    });
    // The old seal kept over the new chain, or a new body under the old signature.
    const fresh = sampleLines({ drafts: altered, key });
    expect(await refusal([...fresh.slice(0, -1), lines.at(-1) ?? ""])).toMatchObject({
      line: 7,
      problem: expect.stringContaining("other rows"),
    });
    const parts = { old: splitSeal(lines.at(-1) ?? ""), new: splitSeal(fresh.at(-1) ?? "") };
    const mixed = sealLine(parts.new?.body ?? "", parts.old?.signature ?? new Uint8Array());
    expect(await refusal([...fresh.slice(0, -1), mixed])).toMatchObject({ line: 7 });
  });

  test("a wrong key", async () => {
    const result = await verifyExport(file, sampleKey());
    expect(result).toMatchObject({ ok: false, line: 7 });
    expect(result).toMatchObject({ problem: expect.stringContaining("sealed with key") });
  });

  test("a seal that lies, though signed", async () => {
    for (const lie of [
      { count: 5 },
      { count: 7 },
      { complete: false },
      { head: "0".repeat(64) },
      { subject: "job:2" as const },
    ]) {
      const result = await refusal(sampleLines({ drafts, key, lie }));
      expect(result.ok).toBe(false);
    }
    const open = drafts.slice(0, 3);
    await refusal(sampleLines({ drafts: open, key, lie: { complete: true } }));
  });

  test("a seal of another form, though signed", async () => {
    const { body } = splitSeal(lines.at(-1) ?? "") ?? { body: "" };
    const seal = JSON.parse(body);
    const forms = [
      body.replace('"count":6', '"count": 6'),
      body.replace('"count":6', '"count":6.0'),
      body.replace('"count":6', '"count":"6"'),
      body.replace('"count":6', '"count":6,"extra":1'),
      body.replace('"count":6', '"count":5,"count":6'),
      JSON.stringify({ ...seal, head: seal.head.toUpperCase() }),
      JSON.stringify({ ...seal, subject: "nothing" }),
      JSON.stringify({ ...seal, subject: "other:1" }),
      JSON.stringify({ ...seal, subject: `job:${"x".repeat(300)}` }),
      JSON.stringify({ ...seal, at: "yesterday" }),
      JSON.stringify({ ...seal, complete: 1 }),
      JSON.stringify({ ...seal, previous: null }),
      '{"kind":"seal",}',
      '{"kind":"seal",[]}',
    ];
    for (const form of forms) {
      const signed = sealLine(form, sign(null, Buffer.from(form), key.privateKey));
      const result = await refusal(lines.with(6, signed));
      expect([form, result.line, result.problem]).toEqual([form, 7, "no seal of the right form"]);
    }
  });

  test("anything after the seal, a second seal, and a seal in the middle", async () => {
    const seal = lines.at(-1) ?? "";
    const problem = "something follows the seal";
    expect(await refusal([...lines, ""])).toMatchObject({ line: 8, problem });
    expect(await refusal([...lines, seal])).toMatchObject({ line: 8, problem });
    const trailing = Buffer.concat([file, Buffer.from(" ")]);
    expect(await check(trailing)).toMatchObject({ line: 8, problem });
    const early = sampleLines({ drafts: drafts.slice(0, 3), key }).at(-1) ?? "";
    expect(await refusal(lines.toSpliced(3, 0, early))).toMatchObject({ line: 5, problem });
  });

  test("other line ends, blank lines, a byte order mark, and what is no UTF-8", async () => {
    const crlf = Buffer.from(file.toString().replaceAll("\n", "\r\n"));
    expect(await check(crlf)).toMatchObject({ ok: false, line: 1 });
    expect(await refusal(lines.toSpliced(2, 0, ""))).toMatchObject({ line: 3 });
    expect(await check(Buffer.concat([Buffer.from("\ufeff"), file]))).toMatchObject({ line: 1 });
    const invalid = Buffer.from(file);
    invalid[60] = 0xff;
    expect(await check(invalid)).toMatchObject({ line: 1, problem: "not UTF-8" });
    // An overlong form and a surrogate, which some decoders let through.
    for (const bytes of [
      [0xc0, 0xaf],
      [0xed, 0xa0, 0x80],
    ]) {
      const row = Buffer.concat([Buffer.from(bytes), file]);
      expect(await check(row)).toMatchObject({ line: 1, problem: "not UTF-8" });
    }
  });

  test("a row after the one that ended the run, though chained and signed", async () => {
    const more = [...drafts, { kind: "stdout", data: "late" } as const];
    const late = sampleLines({ drafts: more, key, lie: { complete: true } });
    expect(await refusal(late)).toMatchObject({ line: 7, seq: 7 });
  });

  test("rows that are no JSON or are numbered with a gap, though chained and signed", async () => {
    const start = (seq: number) => `{"seq":${seq},"at":"2026","kind":"stdout","data":`;
    const good = signedRows([`${start(1)}""}`, `${start(2)}""}`], key);
    expect(await check(toFile(good))).toMatchObject({ ok: true, count: 2 });
    const broken = signedRows([`${start(1)}""}`, `${start(2)}"" ""}`], key);
    expect(await refusal(broken)).toMatchObject({ line: 2, problem: "no row of an event log" });
    const gap = signedRows([`${start(1)}""}`, `${start(3)}""}`], key);
    expect(await refusal(gap)).toMatchObject({
      line: 2,
      seq: 2,
      problem: expect.stringContaining("row 3 where row 2 is due"),
    });
  });

  test("hostile files, without throwing", async () => {
    const nested = "[".repeat(500_000);
    for (const text of [
      "\n",
      "\n\n\n",
      "{}\n",
      "null\n",
      "[]\n",
      `${nested}\n`,
      `{"seq":1,"at":"x","kind":"stdout","data":${nested},"hash":"${"0".repeat(64)}"}\n`,
      '{"kind":"seal",\n',
      `{"kind":"seal","x":${nested}}\n`,
      `{"kind":"seal","signature":"${"0".repeat(128)}"}\n`,
      "\0".repeat(1000),
      "\r",
    ]) {
      expect((await check(Buffer.from(text))).ok).toBe(false);
    }
  });

  test("a line of 100 MB, without reading it to its end", async () => {
    let sent = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      const chunk = new Uint8Array(64 * 1024).fill(120);
      while (sent < 100_000_000) {
        sent += chunk.length;
        yield chunk;
      }
    }
    expect(await check(endless())).toMatchObject({
      ok: false,
      line: 1,
      problem: `longer than ${LINE_BYTES_MAX} bytes`,
    });
    expect(sent).toBeLessThanOrEqual(LINE_BYTES_MAX + 2 * 64 * 1024);
    const whole = new Uint8Array(100_000_000).fill(120);
    expect(await check(whole)).toMatchObject({ ok: false, line: 1 });
  });
});

test("verifyExport() passes on the failure of its source", async () => {
  async function* failing(): AsyncGenerator<Uint8Array> {
    yield file.subarray(0, 10);
    throw new Error("the disk is gone");
  }
  await expect(check(failing())).rejects.toThrow("the disk is gone");
});

test("parsePublicKey() reads Ed25519 keys and refuses the rest", () => {
  const pem = key.publicKey.export({ type: "spki", format: "pem" }).toString();
  expect(keyFingerprint(parsePublicKey(pem))).toBe(keyFingerprint(key.publicKey));
  const other = generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey;
  const hostile = ["", "x", toHex(new Uint8Array(32)), "-----BEGIN PUBLIC KEY-----\nAAAA\n"];
  for (const text of [...hostile, other.export({ type: "spki", format: "pem" }).toString()]) {
    expect(() => parsePublicKey(text)).toThrow("Cannot read the public key");
  }
});
