// Builds exports for the tests of verification, and breaks them.

import { createHash, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import {
  genesis,
  keyFingerprint,
  link,
  type Seal,
  sealBody,
  sealLine,
  toHex,
} from "../../../src/core/chain.ts";
import type { EventDraft, Subject } from "../../../src/core/event.ts";

/** Who signs, with the public half to verify with. */
export interface SampleKey {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

export function sampleKey(): SampleKey {
  return generateKeyPairSync("ed25519");
}

const AT = "2026-01-01T00:00:00.000Z";

const FINISHED: EventDraft = {
  kind: "finished",
  data: {
    status: "succeeded",
    exit_code: 0,
    signal: null,
    reason: "exit",
    duration_ms: 5,
    killed: 0,
    usage: null,
  },
};

/** Output rows, then `finished`. */
export function sampleDrafts(rows: number): EventDraft[] {
  const output = Array.from({ length: rows - 1 }, (_, index): EventDraft => {
    const kind = index % 5 === 4 ? "stderr" : "stdout";
    return { kind, data: index % 7 === 0 ? "é🦊" : `row ${index}` };
  });
  return [...output, FINISHED];
}

export interface ExportParts {
  readonly drafts: readonly EventDraft[];
  readonly key: SampleKey;
  readonly subject?: Subject;
  /** What the seal says other than the truth. */
  readonly lie?: Partial<Seal>;
}

/** An export as lines without their newlines, the seal last. */
export function sampleLines({ drafts, key, subject = "job:1", lie = {} }: ExportParts): string[] {
  let head = genesis(subject);
  const lines = drafts.map((draft, index) => {
    const made = link(head, index + 1, AT, draft);
    head = made.hash;
    return made.line;
  });
  const complete = drafts.at(-1)?.kind === "finished";
  return [...lines, signedSeal(key, { subject, count: lines.length, head, complete, lie })];
}

/** An export of rows that were written by hand, without their hashes. */
export function signedRows(bodies: readonly string[], key: SampleKey): string[] {
  const subject = "job:1";
  let head = genesis(subject);
  const lines = bodies.map((body) => {
    head = createHash("sha256").update(head).update(body).digest();
    return `${body.slice(0, -1)},"hash":"${toHex(head)}"}`;
  });
  const complete = false;
  return [...lines, signedSeal(key, { subject, count: lines.length, head, complete, lie: {} })];
}

interface SealParts {
  readonly subject: Subject;
  readonly count: number;
  readonly head: Uint8Array;
  readonly complete: boolean;
  readonly lie: Partial<Seal>;
}

function signedSeal(key: SampleKey, { subject, count, head, complete, lie }: SealParts): string {
  const body = sealBody({
    kind: "seal",
    subject,
    count,
    head: toHex(head),
    previous: "0".repeat(64),
    complete,
    at: AT,
    key: keyFingerprint(key.publicKey),
    ...lie,
  });
  return sealLine(body, sign(null, Buffer.from(body), key.privateKey));
}

/** A file of lines. */
export function toFile(lines: readonly string[]): Buffer {
  return Buffer.from(lines.map((line) => `${line}\n`).join(""));
}
