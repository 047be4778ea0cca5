/**
 * The hash chain of an event log and the seal that ends an export.
 *
 * A line is the JSON of `{seq, at, kind, data, encoding?}` with `,"hash":"<64 hex>"` put before its
 * closing brace. Its hash is SHA-256 over the previous hash (32 bytes) and the exact bytes of the
 * JSON without the hash. The first line's previous hash is SHA-256 over `cprg:v1:` and the subject,
 * so that a line cannot be moved to another log.
 *
 * The seal is one more line: count, head and the tenant's previous head, signed with Ed25519
 * (RFC 8032). Both hash and signature are lower-case hexadecimal, because every byte of an export
 * must be pinned and base64 leaves bits of its last character unused.
 */

import { createHash, type KeyObject, hash as oneShotHash } from "node:crypto";
import type { EventDraft, EventKind, Subject } from "./event.ts";

/**
 * Longest line of a log, in bytes and without its newline. An output row of 64 KiB may grow
 * sixfold when JSON escapes it.
 */
export const LINE_BYTES_MAX = 1024 * 1024;

/** What precedes a line's hash. */
const HASH_MARK = ',"hash":"';
/** What precedes a seal's signature. */
const SIGNATURE_MARK = ',"signature":"';

/** One link: the line without its newline, and its hash. */
export interface ChainLink {
  readonly line: string;
  readonly hash: Uint8Array;
}

/** The previous hash of a log's first line. */
export function genesis(subject: Subject): Uint8Array {
  return createHash("sha256").update(`cprg:v1:${subject}`).digest();
}

/** Appends a draft: its line and hash. */
export function link(previous: Uint8Array, seq: number, at: string, draft: EventDraft): ChainLink {
  const body = JSON.stringify({
    seq,
    at,
    kind: draft.kind,
    data: draft.data,
    ...(draft.encoding === undefined ? {} : { encoding: draft.encoding }),
  });
  const hash = hashBody(previous, body);
  return { line: withHash(body, hash), hash };
}

/** Bytes of a SHA-256. */
const HASH_BYTES = 32;
/** Where what is hashed is put together: most lines fit, and one call costs a third of three. */
const scratch = Buffer.alloc(16 * 1024);

function hashBody(previous: Uint8Array, body: string): Uint8Array {
  // Three bytes are the most that one UTF-16 unit takes.
  if (HASH_BYTES + body.length * 3 > scratch.length) {
    return createHash("sha256").update(previous).update(body).digest();
  }
  scratch.set(previous, 0);
  const end = HASH_BYTES + scratch.write(body, HASH_BYTES);
  return Buffer.from(oneShotHash("sha256", scratch.subarray(0, end), "hex"), "hex");
}

function withHash(body: string, hash: Uint8Array): string {
  return `${body.slice(0, -1)}${HASH_MARK}${toHex(hash)}"}`;
}

/**
 * Splits a line into its body and stated hash.
 *
 * @returns null when the line does not end in a hash of the right form
 */
export function splitLine(line: string): { body: string; hash: Uint8Array } | null {
  return splitMarked(line, HASH_MARK, 64);
}

function splitMarked(line: string, mark: string, digits: number) {
  const start = line.length - 2 - digits - mark.length;
  if (start <= 0 || !line.endsWith('"}') || !line.startsWith(mark, start)) return null;
  const hex = line.slice(start + mark.length, -2);
  if (!/^[0-9a-f]+$/.test(hex)) return null;
  return { body: `${line.slice(0, start)}}`, hash: new Uint8Array(Buffer.from(hex, "hex")) };
}

/** Whether a line's stated hash follows from the previous one. */
export function linkHolds(previous: Uint8Array, body: string, hash: Uint8Array): boolean {
  return Buffer.compare(hashBody(previous, body), hash) === 0;
}

/** How every line of a log begins, because {@link link} writes it so. */
const LINE_START = /^\{"seq":([1-9][0-9]{0,15}),"at":"[^"\\]+","kind":"([a-z_]+)","data":/;

/**
 * Sequence number and kind of a line, without parsing the rest.
 *
 * @returns null when the line does not begin as {@link link} makes it
 */
export function lineStart(line: string): { seq: number; kind: string } | null {
  const found = LINE_START.exec(line);
  return found === null ? null : { seq: Number(found[1]), kind: found[2] ?? "" };
}

/** The kind that ends a log. */
export const TERMINAL_KIND = "finished" satisfies EventKind;

/** Whether a line ends its log. */
export function isTerminalLine(line: string): boolean {
  return lineStart(line)?.kind === TERMINAL_KIND;
}

/** Tells public keys apart: SHA-256 over the SubjectPublicKeyInfo (RFC 5280), in hexadecimal. */
export function keyFingerprint(publicKey: KeyObject): string {
  return createHash("sha256")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest("hex");
}

/** What signs seals. */
export interface SealKey {
  /** {@link keyFingerprint} of its public half. */
  readonly fingerprint: string;
  /** Ed25519 signature over the UTF-8 bytes of a seal's body: 64 bytes. */
  sign(body: string): Uint8Array;
}

/** What a seal states. */
export interface Seal {
  readonly kind: "seal";
  readonly subject: Subject;
  /** Lines before the seal. */
  readonly count: number;
  /** Hash of the last of them, or the genesis hash when there are none. */
  readonly head: string;
  /** Head of the tenant's previous finished log, or 64 zeros for its first. */
  readonly previous: string;
  /** Whether the run had ended, so that nothing can follow. */
  readonly complete: boolean;
  /** When the seal was made. */
  readonly at: string;
  /** Fingerprint of the public key, to tell a wrong key from a forged line. */
  readonly key: string;
}

/** Bytes that are signed for a seal. */
export function sealBody(seal: Seal): string {
  return JSON.stringify({
    kind: seal.kind,
    subject: seal.subject,
    count: seal.count,
    head: seal.head,
    previous: seal.previous,
    complete: seal.complete,
    at: seal.at,
    key: seal.key,
  });
}

/** A seal's line from its body and signature (64 bytes). */
export function sealLine(body: string, signature: Uint8Array): string {
  return `${body.slice(0, -1)}${SIGNATURE_MARK}${toHex(signature)}"}`;
}

/** Splits a seal's line; null when it is none. */
export function splitSeal(line: string): { body: string; signature: Uint8Array } | null {
  const parts = splitMarked(line, SIGNATURE_MARK, 128);
  return parts === null ? null : { body: parts.body, signature: parts.hash };
}

/** Lower-case hexadecimal. */
export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
