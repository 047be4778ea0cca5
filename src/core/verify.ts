/**
 * Checks an export: every byte of its lines and of its seal. Reads it once, keeps two lines at
 * most, and answers hostile input with what is wrong and where.
 */

import { createPublicKey, type KeyObject, verify } from "node:crypto";
import {
  genesis,
  isTerminalLine,
  keyFingerprint,
  LINE_BYTES_MAX,
  lineStart,
  linkHolds,
  type Seal,
  sealBody,
  splitLine,
  splitSeal,
  toHex,
} from "./chain.ts";
import { CprgError } from "./errors.ts";
import { SUBJECT_KINDS, type Subject } from "./event.ts";
import { LineSplitter } from "./line-splitter.ts";

/** What a verified export is. */
export interface VerifiedExport {
  readonly ok: true;
  readonly subject: Subject;
  /** Lines before the seal. */
  readonly count: number;
  /** Whether the run had ended when the seal was made. */
  readonly complete: boolean;
  /** Hash of the last line, or of the empty log. */
  readonly head: string;
  /** Head of the tenant's previous finished log, or 64 zeros. */
  readonly previous: string;
  /** When the seal was made. */
  readonly at: string;
}

/** Why an export is refused. */
export interface RefusedExport {
  readonly ok: false;
  /** Line of the file, from 1. */
  readonly line: number;
  /** Sequence number that was due there, where a row was. */
  readonly seq?: number;
  readonly problem: string;
}

/** What to verify with. */
export interface VerifyOptions {
  /** The signer's Ed25519 key, from {@link parsePublicKey}. */
  readonly publicKey: KeyObject;
}

/**
 * Reads a public key from PEM.
 *
 * @throws CprgError `invalid_argument` when it is no Ed25519 key
 */
export function parsePublicKey(pem: string): KeyObject {
  try {
    const key = createPublicKey(pem);
    if (key.asymmetricKeyType === "ed25519") return key;
  } catch (error) {
    throw noKey("it is no PEM key", error);
  }
  throw noKey("it is no Ed25519 key");
}

function noKey(state: string, cause?: unknown): CprgError {
  return new CprgError("invalid_argument", `Cannot read the public key: ${state}`, {
    op: "verify export",
    cause,
  });
}

/**
 * Verifies an export in bounded memory. Only a source that fails makes it reject.
 *
 * @param source the export's bytes, whole or in chunks of any size
 */
export async function verifyExport(
  source: Uint8Array | AsyncIterable<Uint8Array>,
  options: VerifyOptions,
): Promise<VerifiedExport | RefusedExport> {
  const checker = new ExportChecker(options.publicKey);
  const splitter = new LineSplitter(LINE_BYTES_MAX);
  for await (const chunk of source instanceof Uint8Array ? [source] : source) {
    for (const line of splitter.split(chunk)) {
      const refused = checker.take(line);
      if (refused !== null) return refused;
    }
  }
  return checker.end(splitter.hasRest);
}

/** Goes through an export line by line. */
class ExportChecker {
  readonly #publicKey: KeyObject;
  /** A byte order mark is a byte like any other: it is not skipped. */
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  #line = 0;
  #rows = 0;
  /** Hangs on the subject, which only the seal names. */
  #first: Row | null = null;
  /** Stated hash of the last row. */
  #head: Uint8Array = new Uint8Array(0);
  #isEnded = false;
  #sealed: VerifiedExport | null = null;

  constructor(publicKey: KeyObject) {
    this.#publicKey = publicKey;
  }

  /** Checks the next line, null for one that is too long; returns what is wrong. */
  take(bytes: Uint8Array | null): RefusedExport | null {
    this.#line += 1;
    if (this.#sealed !== null) return this.#refuse("something follows the seal");
    if (bytes === null) return this.#refuse(`longer than ${LINE_BYTES_MAX} bytes`);
    const line = this.#decode(bytes);
    if (line === null) return this.#refuse("not UTF-8");
    return line.startsWith(SEAL_START) ? this.#takeSeal(line) : this.#takeRow(line);
  }

  /** What the export is, once every line was taken. */
  end(hasRest: boolean): VerifiedExport | RefusedExport {
    this.#line += 1;
    if (hasRest && this.#sealed === null) return this.#refuse("cut: its end is missing");
    if (hasRest) return this.#refuse("something follows the seal");
    return this.#sealed ?? this.#refuse("cut: no seal follows, the tail is missing");
  }

  #decode(bytes: Uint8Array): string | null {
    try {
      return this.#decoder.decode(bytes);
    } catch {
      // The one way in which a fatal decoder fails.
      return null;
    }
  }

  #takeRow(line: string): RefusedExport | null {
    const seq = this.#rows + 1;
    const refuse = (problem: string) => ({ ...this.#refuse(problem), seq });
    if (this.#isEnded) return refuse("a row follows the event that ended the run");
    const start = lineStart(line);
    const parts = splitLine(line);
    if (start === null || parts === null || !isJson(line)) return refuse("no row of an event log");
    if (start.seq !== seq) {
      return refuse(`row ${start.seq} where row ${seq} is due: rows were moved, added or dropped`);
    }
    if (this.#first === null) {
      this.#first = parts;
    } else if (!linkHolds(this.#head, parts.body, parts.hash)) {
      const which = seq === 2 ? "this row or row 1" : "this row";
      return refuse(`the hash does not follow from the row before: ${which} was changed`);
    }
    this.#rows = seq;
    this.#head = parts.hash;
    this.#isEnded = isTerminalLine(line);
    return null;
  }

  #takeSeal(line: string): RefusedExport | null {
    const parts = splitSeal(line);
    const seal = parts === null ? null : parseSeal(parts.body);
    if (parts === null || seal === null) return this.#refuse("no seal of the right form");
    const fingerprint = keyFingerprint(this.#publicKey);
    if (seal.key !== fingerprint) {
      return this.#refuse(`sealed with key ${seal.key}, but the key given is ${fingerprint}`);
    }
    if (!verify(null, Buffer.from(parts.body), this.#publicKey, parts.signature)) {
      return this.#refuse("the signature does not hold: the seal was not made with this key");
    }
    return this.#compare(seal);
  }

  /** Compares what the signer stated with what was read. */
  #compare(seal: Seal): RefusedExport | null {
    const empty = genesis(seal.subject);
    if (this.#first !== null && !linkHolds(empty, this.#first.body, this.#first.hash)) {
      const problem = `row 1 was changed, or is not of ${seal.subject}`;
      return { ok: false, line: 1, seq: 1, problem };
    }
    if (seal.count !== this.#rows) {
      return this.#refuse(`the seal is over ${seal.count} rows, but there are ${this.#rows}`);
    }
    if (seal.head !== toHex(this.#first === null ? empty : this.#head)) {
      return this.#refuse("the seal is over other rows: the chain was computed anew");
    }
    if (seal.complete !== this.#isEnded) {
      return this.#refuse("the seal and the last row differ on whether the run had ended");
    }
    const { subject, count, complete, head, previous, at } = seal;
    this.#sealed = { ok: true, subject, count, complete, head, previous, at };
    return null;
  }

  #refuse(problem: string): RefusedExport {
    return { ok: false, line: this.#line, problem };
  }
}

interface Row {
  readonly body: string;
  readonly hash: Uint8Array;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    // Also when it is nested too deeply.
    return false;
  }
}

const SEAL_START = '{"kind":"seal",';
const HASH = /^[0-9a-f]{64}$/;
const SUBJECT = new RegExp(`^(?:${SUBJECT_KINDS.join("|")}):.{1,256}$`);
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** Null for anything but the exact text that `sealBody` makes. */
function parseSeal(body: string): Seal | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return null;
  }
  if (typeof parsed !== "object" || parsed === null) return null;
  const seal = parsed as Record<keyof Seal, unknown>;
  const isSound =
    isText(seal.subject, SUBJECT) &&
    isText(seal.head, HASH) &&
    isText(seal.previous, HASH) &&
    isText(seal.key, HASH) &&
    isText(seal.at, TIME) &&
    Number.isSafeInteger(seal.count) &&
    typeof seal.complete === "boolean";
  if (!isSound) return null;
  return sealBody(parsed as Seal) === body ? (parsed as Seal) : null;
}

function isText(value: unknown, form: RegExp): boolean {
  return typeof value === "string" && form.test(value);
}
