// proto/golden/vectors.json: values and their bytes, which protobuf for Python wrote. Every side of
// the protocol reads them.

import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create, fromBinary, fromJson, type JsonValue, toBinary } from "@bufbuild/protobuf";
import protobuf from "protobufjs";
import { envelopeOf, frameOf, messageCodec, payloadCodec } from "../../src/bridge/codec.ts";
import type { Messages } from "../../src/gen/messages.ts";
import { EnvelopeSchema } from "../../src/gen/outrigger/v1/bridge_pb.js";
import { requireHost } from "../helpers/host.ts";

interface Vector {
  readonly message: string;
  /** In the JSON form of protobuf. */
  readonly value: Record<string, JsonValue>;
  readonly hex: string;
}

const top = join(import.meta.dir, "../..");
const path = join(top, "proto/golden/vectors.json");
const vectors = JSON.parse(readFileSync(path, "utf8")) as Vector[];
const payloads = vectors.filter(({ message }) => message !== "Envelope");

const root = new protobuf.Root();
root.resolvePath = (_, target) => (target.startsWith("/") ? target : join(top, "proto", target));
root.loadSync(
  [...new Bun.Glob("proto/**/*.proto").scanSync({ cwd: top })].map((each) => join(top, each)),
);

/** Our plain object of a JSON value, with what is not set left out. */
function plain(type: protobuf.Type, value: Record<string, JsonValue>): Record<string, unknown> {
  const one = (field: protobuf.Field, each: JsonValue): unknown => {
    if (field.resolvedType instanceof protobuf.Type) {
      return plain(field.resolvedType, each as Record<string, JsonValue>);
    }
    if (field.type === "bytes") return Buffer.from(String(each), "base64");
    return /int64$/.test(field.type) ? Number(each) : each;
  };
  const fields = Object.entries(value).map(([name, each]) => {
    const field = type.fields[name];
    if (field === undefined) throw new Error(`${type.name} has no ${name}`);
    field.resolve();
    if (field.repeated) return [name, (each as JsonValue[]).map((item) => one(field, item))];
    if (field instanceof protobuf.MapField) return [name, each];
    return [name, one(field, each)];
  });
  return Object.fromEntries(fields) as Record<string, unknown>;
}

test("every payload has a vector", () => {
  const named = new Set(payloads.map(({ message }) => message));
  const space = root.lookup("outrigger.v1") as protobuf.Namespace;
  const all = space.nestedArray.filter((each) => each instanceof protobuf.Type);
  expect(
    all.map(({ name }) => name).filter((name) => name !== "Envelope" && !named.has(name)),
  ).toEqual([]);
});

describe("payloads", () => {
  test.each(payloads.map((vector) => [vector.message, vector] as const))(
    "%s",
    (message, vector) => {
      const codec = payloadCodec(message as keyof Messages);
      const type = root.lookupType(`outrigger.v1.${message}`);
      const value = plain(type, vector.value);
      expect(Buffer.from(codec.encode(value)).toString("hex")).toBe(vector.hex);
      const decoded = codec.decode(Buffer.from(vector.hex, "hex"));
      expect(decoded).toMatchObject(value);
      expect(Buffer.from(codec.encode(decoded)).toString("hex")).toBe(vector.hex);
      // A type that was loaded at run time gives the same.
      const reflected = messageCodec<object>(type);
      expect(Buffer.from(reflected.encode(value)).toString("hex")).toBe(vector.hex);
      expect(reflected.decode(Buffer.from(vector.hex, "hex"))).toEqual(decoded);
    },
  );
});

describe("Envelope", () => {
  const envelopes = vectors.filter(({ message }) => message === "Envelope");
  test.each(envelopes.map((vector) => [vector.hex, vector] as const))("%s", (hex, { value }) => {
    const bytes = Buffer.from(hex, "hex");
    const envelope = fromBinary(EnvelopeSchema, bytes);
    expect(envelope).toEqual(fromJson(EnvelopeSchema, value));
    const frame = frameOf(envelope);
    expect(Buffer.from(toBinary(EnvelopeSchema, envelopeOf(frame))).toString("hex")).toBe(hex);
  });

  test("a kind without a number of its own is unknown", () => {
    expect(frameOf(create(EnvelopeSchema, { kind: 9 as never })).kind).toBe("unknown");
    expect(frameOf(create(EnvelopeSchema)).kind).toBe("unknown");
  });
});

requireHost({ programs: ["protoc"] }).test("protobuf for Python reads the same", () => {
  const run = Bun.spawnSync(["/usr/bin/python3", join(top, "test/bridge/golden.py")]);
  expect(run.stderr.toString()).toBe("");
  expect(Number(run.stdout.toString())).toBe(vectors.length);
});
