/** Errors on the wire: `code: [REASON] message` in an Envelope, the rest of it in a gRPC status. */

import { CprgError, type ErrorCode } from "../core/errors.ts";
import { ERROR_BYTES_MAX } from "./limits.ts";

/** Codes by number: the names of gRPC's status codes (grpc/grpc doc/statuscodes.md). */
const CODES: readonly (ErrorCode | undefined)[] = [
  undefined,
  "canceled",
  "unknown",
  "invalid_argument",
  "deadline_exceeded",
  "not_found",
  "already_exists",
  "permission_denied",
  "resource_exhausted",
  "failed_precondition",
  "aborted",
  "out_of_range",
  "unimplemented",
  "internal",
  "unavailable",
  "data_loss",
  "unauthenticated",
];

const TEXT = /^([a-z_]+): ?([\s\S]*)$/;
const REASON = /^\[([A-Z][A-Z0-9_]{0,63})\] ?([\s\S]*)$/;

/** Number of a code in gRPC. */
export function codeNumber(code: ErrorCode): number {
  return CODES.indexOf(code);
}

/** The code of a number; `unknown` for every number without one. */
export function codeOfNumber(number: number): ErrorCode {
  return CODES[number] ?? "unknown";
}

/** `[REASON] message`, at most as long as an error may be. */
export function statusText(error: CprgError): string {
  const text = error.reason === undefined ? error.message : `[${error.reason}] ${error.message}`;
  return cutText(text, ERROR_BYTES_MAX - 64);
}

/** What an Envelope's `error` says. */
export function errorText(error: CprgError): string {
  return `${error.code}: ${statusText(error)}`;
}

/** The error that a gRPC status with a message stands for. */
export function errorOfStatus(code: ErrorCode, message: string): CprgError {
  const bounded = cutText(message, ERROR_BYTES_MAX);
  const match = REASON.exec(bounded);
  if (match === null) return new CprgError(code, bounded);
  const [, reason = "", text = ""] = match;
  return new CprgError(code, text, { reason });
}

/** The error that a peer's `error` stands for: whatever text it is, it becomes one. */
export function errorOfText(text: string): CprgError {
  const bounded = cutText(text, ERROR_BYTES_MAX);
  const [, word = "", message = ""] = TEXT.exec(bounded) ?? [];
  const code = CODES.find((each) => each === word);
  return code === undefined ? new CprgError("unknown", bounded) : errorOfStatus(code, message);
}

/** Text cut to a number of UTF-8 bytes, at a character. */
export function cutText(text: string, bytesMax: number): string {
  if (text.length * 3 <= bytesMax) return text;
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= bytesMax) return text;
  let end = bytesMax;
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return new TextDecoder().decode(bytes.subarray(0, end));
}
