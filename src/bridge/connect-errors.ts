/** Errors of Connect, of HTTP/2 and of sockets, and ours: each is converted once, here. */

import { type Code, ConnectError } from "@connectrpc/connect";
import { CprgError } from "../core/errors.ts";
import { codeNumber, codeOfNumber, errorOfStatus, statusText } from "./error-text.ts";

/** The gRPC status that ends a stream for this reason. */
export function statusOf(error: CprgError): ConnectError {
  return new ConnectError(statusText(error), codeNumber(error.code) as Code);
}

/**
 * Why a stream ended. What a peer sends that is no Envelope is `invalid_argument` PROTOCOL_ERROR, a
 * message above the bound `resource_exhausted` OVERSIZE; a connection that is gone is `unavailable`.
 */
export function streamError(thrown: unknown): CprgError {
  if (CprgError.is(thrown)) return thrown;
  if (!(thrown instanceof ConnectError)) return lost(thrown);
  const error = errorOfStatus(codeOfNumber(thrown.code), thrown.rawMessage);
  // A status that the peer sent is what it says; everything else was made on this side.
  if (thrown.metadata.has("grpc-status")) return error;
  if (/^message size \d+ is larger than configured/.test(error.message)) {
    return new CprgError("resource_exhausted", error.message, { reason: "OVERSIZE" });
  }
  if (isProtocolError(thrown)) {
    return new CprgError("invalid_argument", error.message, { reason: "PROTOCOL_ERROR" });
  }
  return lost(thrown);
}

/**
 * What Connect says when it could not read a message or the envelope around it
 * (connect's `protocol/async-iterable.ts`, `serialization.ts`, `envelope.ts`); it has no code for that.
 * A missing status is a connection that broke.
 */
function isProtocolError({ rawMessage }: ConnectError): boolean {
  return /^(parse binary|protocol error: (?!missing status)|received compressed envelope|unexpected end flag)/.test(
    rawMessage,
  );
}

function lost(thrown: unknown): CprgError {
  const message = thrown instanceof ConnectError ? thrown.rawMessage : String(thrown);
  return new CprgError("unavailable", `the connection was lost: ${message}`, { cause: thrown });
}
