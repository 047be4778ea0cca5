import { expect, test } from "bun:test";
import { createHash, generateKeyPairSync } from "node:crypto";
import {
  genesis,
  isTerminalLine,
  keyFingerprint,
  lineStart,
  link,
  linkHolds,
  type Seal,
  sealBody,
  sealLine,
  splitLine,
  splitSeal,
  toHex,
} from "../../../src/core/chain.ts";
import type { EventDraft } from "../../../src/core/event.ts";

const AT = "2026-01-01T00:00:00.000Z";
const zero = new Uint8Array(32);
const output = (data: string): EventDraft => ({ kind: "stdout", data });
const sha256 = (...parts: (string | Uint8Array)[]) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
};

test("genesis() is SHA-256 over the prefix and the subject", () => {
  expect(toHex(genesis("job:1"))).toBe(sha256("cprg:v1:job:1"));
  expect(toHex(genesis("job:1"))).not.toBe(toHex(genesis("exec:1")));
});

test("link() writes the line to the letter, hashed over the previous hash and its other bytes", () => {
  const body = `{"seq":7,"at":"${AT}","kind":"stdout","data":"é\\n"}`;
  const hash = sha256(zero, body);
  const made = link(zero, 7, AT, output("é\n"));
  expect(made.line).toBe(`${body.slice(0, -1)},"hash":"${hash}"}`);
  expect(toHex(made.hash)).toBe(hash);
  const base64 = link(zero, 7, AT, { kind: "stderr", data: "/w==", encoding: "base64" });
  expect(base64.line).toContain('"kind":"stderr","data":"/w==","encoding":"base64","hash":"');
});

test("splitLine() undoes link() for hostile text", () => {
  for (const text of ["", '"}', '","hash":"', "\0", "\ud800", "\u2028", "🦊", "\\", "\n"]) {
    const { line, hash } = link(zero, 1, AT, output(text));
    const parts = splitLine(line);
    expect(toHex(parts?.hash ?? zero)).toBe(toHex(hash));
    expect(linkHolds(zero, parts?.body ?? "", hash)).toBe(true);
    expect(linkHolds(hash, parts?.body ?? "", hash)).toBe(false);
    expect(linkHolds(zero, `${parts?.body} `, hash)).toBe(false);
    expect(JSON.parse(parts?.body ?? "").data).toBe(text);
    expect(line).not.toContain("\n");
  }
});

test("splitLine() refuses what does not end in a hash of the right form", () => {
  const hex = "a".repeat(64);
  const right = `{"x":1,"hash":"${hex}"}`;
  expect(splitLine(right)).toEqual({ body: '{"x":1}', hash: new Uint8Array(32).fill(0xaa) });
  for (const line of [
    "",
    "}",
    `"hash":"${hex}"}`,
    `,"hash":"${hex}"}`,
    `{"x":1,"hash":"${hex.toUpperCase()}"}`,
    `{"x":1,"hash":"${hex.slice(1)}"}`,
    `{"x":1,"hash":"${hex}a"}`,
    `{"x":1,"hash":"${hex.slice(1)}g"}`,
    `{"x":1,"hash":"${hex.slice(1)}\n"}`,
    `{"x":1,"hash": "${hex}"}`,
    `{"x":1,"hush":"${hex}"}`,
    `${right} `,
    `${right}\r`,
    right.slice(0, -1),
  ]) {
    expect([line, splitLine(line)]).toEqual([line, null]);
  }
});

test("lineStart() reads seq and kind, and nothing else", () => {
  expect(lineStart(link(zero, 12, AT, output("x")).line)).toEqual({ seq: 12, kind: "stdout" });
  for (const line of [
    "",
    "{}",
    `{"seq":0,"at":"${AT}","kind":"stdout","data":""}`,
    `{"seq":01,"at":"${AT}","kind":"stdout","data":""}`,
    `{"seq":-1,"at":"${AT}","kind":"stdout","data":""}`,
    `{"seq":1e3,"at":"${AT}","kind":"stdout","data":""}`,
    `{"seq": 1,"at":"${AT}","kind":"stdout","data":""}`,
    `{"at":"${AT}","seq":1,"kind":"stdout","data":""}`,
    ` {"seq":1,"at":"${AT}","kind":"stdout","data":""}`,
    `{"seq":99999999999999999,"at":"${AT}","kind":"stdout","data":""}`,
  ]) {
    expect([line, lineStart(line)]).toEqual([line, null]);
  }
});

test("isTerminalLine() is true for finished alone, whatever the output says", () => {
  const data = { status: "succeeded", exit_code: 0, signal: null, reason: "exit" } as const;
  const end = { ...data, duration_ms: 1, killed: 0, usage: null };
  expect(isTerminalLine(link(zero, 1, AT, { kind: "finished", data: end }).line)).toBe(true);
  const forged = output('"kind":"finished","data":');
  expect(isTerminalLine(link(zero, 1, AT, forged).line)).toBe(false);
  expect(isTerminalLine("")).toBe(false);
});

test("sealLine() and splitSeal() are inverse, and the body has one form", () => {
  const seal: Seal = {
    kind: "seal",
    subject: "job:1",
    count: 2,
    head: "a".repeat(64),
    previous: "0".repeat(64),
    complete: true,
    at: AT,
    key: "b".repeat(64),
  };
  const body = sealBody(seal);
  expect(body).toBe(
    `{"kind":"seal","subject":"job:1","count":2,"head":"${"a".repeat(64)}",` +
      `"previous":"${"0".repeat(64)}","complete":true,"at":"${AT}","key":"${"b".repeat(64)}"}`,
  );
  const reversed = Object.fromEntries(Object.entries(seal).reverse()) as unknown as Seal;
  expect(sealBody(reversed)).toBe(body);
  const line = sealLine(body, new Uint8Array(64).fill(7));
  expect(line).toBe(`${body.slice(0, -1)},"signature":"${"07".repeat(64)}"}`);
  expect(splitSeal(line)).toEqual({ body, signature: new Uint8Array(64).fill(7) });
  expect(splitSeal(line.replace("07", "7"))).toBeNull();
});

test("keyFingerprint() is SHA-256 over the DER of the public key", () => {
  const { publicKey } = generateKeyPairSync("ed25519");
  const der = publicKey.export({ type: "spki", format: "der" });
  expect(keyFingerprint(publicKey)).toBe(sha256(der));
  expect(keyFingerprint(generateKeyPairSync("ed25519").publicKey)).not.toBe(sha256(der));
});
