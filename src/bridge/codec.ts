/**
 * Bytes and messages. The Envelope is read and written by Connect, which needs @bufbuild/protobuf
 * for it; the payloads of methods are protobufjs': static code for the built-in ones, the types of
 * its reflection for methods that an embedder adds at run time.
 */

import { create } from "@bufbuild/protobuf";
import { CprgError } from "../core/errors.ts";
import type { Messages } from "../gen/messages.ts";
import { type Envelope, Envelope_Kind, EnvelopeSchema } from "../gen/outrigger/v1/bridge_pb.js";
import { outrigger, type StaticType } from "../gen/payloads.js";
import type { Codec, Frame, FrameKind } from "./contract.ts";

/**
 * What a message type has to do: static code of `pbjs` does it, and so does a `protobuf.Type` that
 * was loaded from a .proto file at run time.
 */
export type MessageType = StaticType;

const PLAIN = Object.freeze({ longs: Number, defaults: true, arrays: true, objects: true });

/**
 * The codec of a protobufjs type, for methods that an embedder declares. 64-bit fields are numbers,
 * exact up to 2^53.
 */
export function messageCodec<T extends object>(type: MessageType): Codec<T> {
  return Object.freeze({
    encode: (message: Partial<T>) => type.encode(message).finish(),
    decode: (bytes: Uint8Array) => decodePlain(type, bytes) as T,
  });
}

/** The codec of a built-in message. */
export function payloadCodec<Name extends keyof Messages>(name: Name): Codec<Messages[Name]> {
  return messageCodec<Messages[Name]>(outrigger.v1[name]);
}

function decodePlain(type: MessageType, bytes: Uint8Array): object {
  try {
    return type.toObject(type.decode(bytes), PLAIN);
  } catch (cause) {
    throw new CprgError("invalid_argument", "payload is not the method's message", { cause });
  }
}

const KIND_NUMBERS: Readonly<Record<FrameKind, Envelope_Kind>> = {
  request: Envelope_Kind.REQUEST,
  response: Envelope_Kind.RESPONSE,
  error: Envelope_Kind.ERROR,
  unknown: Envelope_Kind.KIND_UNSPECIFIED,
};

const KINDS = new Map<number, FrameKind>(
  Object.entries(KIND_NUMBERS).map(([kind, number]) => [number, kind as FrameKind]),
);

/** What Connect sends for a frame. */
export function envelopeOf(frame: Frame): Envelope {
  const { id, method, error } = frame;
  const payload = frame.payload as Uint8Array<ArrayBuffer>;
  return create(EnvelopeSchema, { id, method, payload, kind: KIND_NUMBERS[frame.kind], error });
}

/** The frame of what Connect received. */
export function frameOf(envelope: Envelope): Frame {
  const { id, method, payload, kind, error } = envelope;
  return { id, method, payload, kind: KINDS.get(kind) ?? "unknown", error };
}
