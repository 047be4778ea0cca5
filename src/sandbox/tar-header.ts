/**
 * The 512-byte header of a tar stream, both ways: POSIX ustar and pax (pax(1), "ustar Interchange
 * Format"), with GNU's base-256 numbers. A library would buffer a pax record of whatever size its
 * header claims, and replace bytes of names that are no UTF-8: here both are refused.
 */

import { CprgError } from "../core/errors.ts";

/** Bytes of a block. */
export const BLOCK_BYTES = 512;

const NAME_BYTES = 100;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** What a header says. */
export interface TarHeader {
  readonly name: string;
  readonly mode: number;
  readonly size: number;
  /** `typeflag`, as a character; `\0` of the oldest tars is "0". */
  readonly type: string;
  readonly linkName: string;
}

/** The error of a stream that cannot be taken; every one is the client's. */
export function badTar(what: string, hint?: string): CprgError {
  return new CprgError("invalid_argument", `Cannot unpack tar: ${what}`, {
    reason: "TAR",
    field: "body",
    ...(hint === undefined ? {} : { hint }),
  });
}

/** Text in UTF-8. @throws CprgError for bytes that are none */
export function tarText(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw badTar("it has a name that is no UTF-8");
  }
}

/**
 * Reads a header.
 *
 * @returns null for a block of zeros, which ends a stream
 * @throws CprgError `invalid_argument` when it is none
 */
export function decodeHeader(block: Uint8Array): TarHeader | null {
  const sum = sumOf(block);
  if (sum === BLANKS_SUM && block.subarray(148, 156).every((byte) => byte === 0)) return null;
  if (octal(block.subarray(148, 156)) !== sum)
    throw badTar("a header's checksum is wrong: it is damaged, or no tar");
  const isUstar = Buffer.from(block.subarray(257, 263)).toString("latin1") === "ustar\0";
  const name = field(block, 0, NAME_BYTES);
  const prefix = isUstar ? field(block, 345, 155) : "";
  const type = String.fromCharCode(block[156] ?? 0);
  return {
    name: prefix === "" ? name : `${prefix}/${name}`,
    mode: octal(block.subarray(100, 108)) & 0o777,
    size: numberOf(block.subarray(124, 136)),
    type: type === "\0" ? "0" : type,
    linkName: field(block, 157, NAME_BYTES),
  };
}

/** Sum of a block of zeros but for its checksum, which counts as blanks. */
const BLANKS_SUM = 8 * 0x20;

/** Sum of all bytes. */
function sumOf(block: Uint8Array): number {
  let sum = BLANKS_SUM;
  for (let index = 0; index < BLOCK_BYTES; index += 1) {
    if (index === 148) index = 156;
    sum += block[index] ?? 0;
  }
  return sum;
}

function field(block: Uint8Array, at: number, length: number): string {
  const bytes = block.subarray(at, at + length);
  const end = bytes.indexOf(0);
  return tarText(end === -1 ? bytes : bytes.subarray(0, end));
}

function octal(bytes: Uint8Array): number {
  const text = Buffer.from(bytes)
    .toString("latin1")
    .replace(/[\0 ]+$/, "")
    .trimStart();
  if (text === "") return 0;
  if (!/^[0-7]+$/.test(text)) throw badTar("a header has a number that is none");
  return Number.parseInt(text, 8);
}

/** Octal digits, or with the first bit set a number in base 256 (GNU tar). */
function numberOf(bytes: Uint8Array): number {
  if (((bytes[0] ?? 0) & 0x80) === 0) return octal(bytes);
  let value = (bytes[0] ?? 0) & 0x7f;
  for (const byte of bytes.subarray(1)) value = value * 256 + byte;
  if (Number.isSafeInteger(value)) return value;
  throw badTar("a header has a size that is beyond all bounds");
}

/** What is written of an entry. */
export interface TarFields {
  readonly name: string;
  readonly mode: number;
  readonly size: number;
  readonly type: "0" | "2" | "5";
  readonly linkName: string;
  readonly mtimeSeconds: number;
}

const SIZE_OCTAL_MAX = 0o77777777777;

/** Header of an entry, behind a pax record where ustar cannot hold it. */
export function encodeHeader(fields: TarFields): Uint8Array {
  const records = [
    ...(utf8(fields.name).length > NAME_BYTES ? [paxRecord("path", fields.name)] : []),
    ...(utf8(fields.linkName).length > NAME_BYTES ? [paxRecord("linkpath", fields.linkName)] : []),
    ...(fields.size > SIZE_OCTAL_MAX ? [paxRecord("size", String(fields.size))] : []),
  ];
  const header = block(fields, fields.type);
  if (records.length === 0) return header;
  const pax = Buffer.concat(records);
  const about = { ...fields, name: "PaxHeaders/entry", linkName: "", size: pax.length };
  const padding = new Uint8Array(paddingOf(pax.length));
  return Buffer.concat([block(about, "x"), pax, padding, header]);
}

/** Bytes that fill the last block of a content. */
export function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

function block(fields: Omit<TarFields, "type">, type: string): Uint8Array {
  const bytes = new Uint8Array(BLOCK_BYTES);
  const put = (at: number, value: Uint8Array): void => bytes.set(value, at);
  const number = (at: number, digits: number, value: number): void =>
    put(at, utf8(value.toString(8).padStart(digits, "0")));
  put(0, cut(fields.name));
  number(100, 7, fields.mode);
  number(108, 7, 0);
  number(116, 7, 0);
  number(124, 11, Math.min(fields.size, SIZE_OCTAL_MAX));
  number(136, 11, fields.mtimeSeconds);
  put(156, utf8(type));
  put(157, cut(fields.linkName));
  put(257, utf8("ustar\x0000"));
  put(148, utf8("        "));
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  put(148, utf8(`${sum.toString(8).padStart(6, "0")}\0 `));
  return bytes;
}

/** The start of a name that is whole in a pax record; readers without pax see where it belongs. */
function cut(text: string): Uint8Array {
  const bytes = utf8(text);
  if (bytes.length <= NAME_BYTES) return bytes;
  let end = NAME_BYTES;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.subarray(0, end);
}

/** `LENGTH key=value\n`, where the length counts itself (pax(1), "Extended Header"). */
function paxRecord(key: string, value: string): Uint8Array {
  const rest = utf8(` ${key}=${value}\n`);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) {
    length = String(length).length + rest.length;
  }
  return Buffer.concat([utf8(String(length)), rest]);
}

function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}
