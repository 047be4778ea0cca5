// The protocol on Node with @grpc/grpc-js, by the .proto files alone: what both sides of it share.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protobuf from "protobufjs";

const TOP = join(dirname(fileURLToPath(import.meta.url)), "../../proto");
const FOLDER = join(TOP, "outrigger/v1");

const root = new protobuf.Root();
root.resolvePath = (_, target) => (target.startsWith("/") ? target : join(TOP, target));
root.loadSync(readdirSync(FOLDER).map((name) => join(FOLDER, name)));

/** A message type by its name. */
export const type = (name) => root.lookupType(`outrigger.v1.${name}`);

const Envelope = type("Envelope");
export const { REQUEST, RESPONSE, ERROR } = Envelope.lookupEnum("Kind").values;

/** The one method, for a client and for a server. */
export const CONNECT = {
  path: "/outrigger.v1.WorkerBridge/Connect",
  requestStream: true,
  responseStream: true,
  requestSerialize: (message) => Buffer.from(Envelope.encode(message).finish()),
  requestDeserialize: (bytes) => Envelope.decode(bytes),
  responseSerialize: (message) => Buffer.from(Envelope.encode(message).finish()),
  responseDeserialize: (bytes) => Envelope.decode(bytes),
};

export { grpc };

/** A payload. */
export const encode = (name, value) => type(name).encode(type(name).fromObject(value)).finish();
/** What a payload says. */
export const decode = (name, bytes) =>
  type(name).toObject(type(name).decode(bytes), {
    longs: Number,
    bytes: Buffer,
    defaults: true,
    oneofs: true,
  });

/** Says something to the test. */
export const say = (event, fields = {}) =>
  process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);

/** Reads every golden vector and writes it again. Throws at the first that differs; gives their number. */
export function checkVectors() {
  const vectors = JSON.parse(readFileSync(join(TOP, "golden/vectors.json"), "utf8"));
  for (const { message, hex } of vectors) {
    const known = type(message);
    const again = known.encode(known.decode(Buffer.from(hex, "hex"))).finish();
    // Maps have no order on the wire, so what was written is read once more.
    const first = JSON.stringify(
      known.toObject(known.decode(Buffer.from(hex, "hex")), { longs: String }),
    );
    const second = JSON.stringify(known.toObject(known.decode(again), { longs: String }));
    const isSame = Buffer.from(again).toString("hex").length === hex.length && first === second;
    if (!isSame) throw new Error(`${message} ${hex} became ${Buffer.from(again).toString("hex")}`);
  }
  return vectors.length;
}
