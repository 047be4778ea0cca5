// Random frames, random bytes and random metadata: nothing throws where nobody listens, nothing
// hangs, nothing is left over, and whoever keeps the rules is served.
//   CPRG_BRIDGE_FUZZ_SEED=7 CPRG_BRIDGE_FUZZ_FRAMES=1000000    one run, longer

import { describe, expect, test } from "bun:test";
import { type ClientHttp2Session, connect } from "node:http2";
import { toBinary } from "@bufbuild/protobuf";
import { envelopeOf } from "../../src/bridge/codec.ts";
import type { Frame, FrameKind } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { type Header, parseRegistration, registrationHeaders } from "../../src/bridge/metadata.ts";
import {
  CANCEL,
  CREDIT,
  EXEC_START,
  FS_STAT,
  FS_UPLOAD,
  HEARTBEAT_NOTICE,
} from "../../src/bridge/methods.ts";
import { CprgError } from "../../src/core/errors.ts";
import { EnvelopeSchema } from "../../src/gen/outrigger/v1/bridge_pb.js";
import { printedSeed, seeded } from "../helpers/seeded.ts";
import { startControl, startWorker } from "./control.ts";
import { FULL, rawPeer } from "./peers.ts";

const FRAMES = Number(process.env["CPRG_BRIDGE_FUZZ_FRAMES"] ?? 20_000);
const random = seeded(printedSeed("CPRG_BRIDGE_FUZZ_SEED"));

function pick<T>(list: readonly T[]): T {
  return list[Math.floor(random() * list.length)] as T;
}

function randomBytes(bytesMax: number): Uint8Array {
  const bytes = new Uint8Array(Math.floor(random() ** 3 * bytesMax));
  for (let at = 0; at < Math.min(bytes.length, 64); at += 1) bytes[at] = random() * 256;
  return bytes;
}

/** Bytes with a bit, a length or an end that is not what it was. */
function mutated(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(bytes);
  if (copy.length > 0 && random() < 0.5) copy[Math.floor(random() * copy.length)] = random() * 256;
  return random() < 0.5 ? copy : copy.subarray(0, Math.floor(random() * copy.length));
}

const IDS = ["", "1", "2", "3", "4", "5", "6", "7", "n-1", "é", "x".repeat(200)];
const METHODS = [
  "",
  ...[CANCEL, CREDIT, EXEC_START, FS_STAT, FS_UPLOAD, HEARTBEAT_NOTICE].map(({ name }) => name),
  "no.Such",
  "m".repeat(200),
];

function randomPayload(): Uint8Array {
  const requestId = pick(IDS);
  const payloads = [
    () => new Uint8Array(0),
    () => CANCEL.request.encode({ requestId, reason: pick(["", "why", "x".repeat(5000)]) }),
    () =>
      CREDIT.request.encode({
        requestId,
        bytes: pick([0, 1, 65_536, 2 ** 40]),
        upload: random() < 0.5,
      }),
    () => EXEC_START.response.encode({ stdout: randomBytes(70_000), seq: 1 }),
    () => FS_UPLOAD.request.encode({ chunk: randomBytes(70_000) }),
    () => randomBytes(300_000),
  ];
  const payload = pick(payloads)();
  return random() < 0.2 ? mutated(payload) : payload;
}

function randomFrame(): Frame {
  const kind = pick<FrameKind>(["request", "request", "request", "response", "error", "unknown"]);
  const error = pick(["", "canceled: x", "nonsense", "aborted: [STALE_EPOCH] y", "é".repeat(3000)]);
  return { id: pick(IDS), method: pick(METHODS), payload: randomPayload(), kind, error };
}

/** One of each kind; some wait to be cancelled. */
function servingAll(): Handlers {
  const cancelled = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
  return new Handlers()
    .unary(FS_STAT, async ({ path }, { signal }) => {
      if (path.length % 2 === 1) await cancelled(signal);
      return {};
    })
    .serverStream(EXEC_START, async function* ({ argv }, { signal }) {
      for (let seq = 1; seq <= 1 + argv.length; seq += 1) {
        yield { stdout: new Uint8Array(40_000), seq };
      }
      if (argv.length % 2 === 1) await cancelled(signal);
    })
    .clientStream(FS_UPLOAD, async (items) => {
      for await (const _ of items) if (random() < 0.1) return { entries: 1 };
      return {};
    })
    .notice(HEARTBEAT_NOTICE, () => undefined);
}

test.each([
  ["with credit", FULL],
  ["of a plain peer", []],
])("random frames %s", async (_, callerLists) => {
  const bugs: unknown[] = [];
  let left = FRAMES;
  while (left > 0) {
    const { mux, end } = rawPeer(servingAll(), {
      callerLists,
      onBug: (error) => void bugs.push(error),
    });
    const drain = (async () => {
      for await (const _frame of end.frames);
    })().catch(() => undefined);
    const ours = [
      mux.call(FS_STAT, {}),
      mux.upload(FS_UPLOAD, [{ chunk: new Uint8Array(9) }]),
      ...["1", "2"].map(async () => {
        for await (const _item of mux.stream(EXEC_START, {})) if (random() < 0.01) break;
      }),
    ].map((call) => call.catch((error: unknown) => error));
    // Until it has had enough of us, or for a while.
    const frames = Math.min(left, 3000);
    left -= frames;
    for (let sent = 0; sent < frames; sent += 1) {
      const isOver = await end.send(randomFrame()).then(
        () => false,
        () => true,
      );
      if (isOver) break;
    }
    end.close();
    await Promise.all([...ours, drain, mux.closed]);
    expect(mux.servedCalls).toBe(0);
    for (const result of await Promise.all(ours)) {
      if (result instanceof Error) expect(CprgError.is(result)).toBe(true);
    }
  }
  expect(bugs).toEqual([]);
});

test("random metadata are read or refused, never more", () => {
  const said = registrationHeaders(
    {
      workerId: "w",
      name: "né",
      labels: { a: "b" },
      methods: ["a.B"],
      version: "1",
      slots: 2,
      secret: "s",
      claims: [{ taskId: "t", epoch: 1 }],
    },
    "token",
  );
  const pieces = [
    ",",
    ":",
    "{",
    '"',
    "\\u",
    "\0",
    "é",
    "__proto__",
    " ",
    "9".repeat(20),
    "x".repeat(300),
  ];
  let accepted = 0;
  for (let round = 0; round < FRAMES; round += 1) {
    const headers = said.map(([name, value]): Header => {
      if (random() < 0.8) return [name, value];
      const at = Math.floor(random() * value.length);
      return [name, value.slice(0, at) + pick(pieces) + value.slice(at + (random() < 0.5 ? 1 : 0))];
    });
    if (random() < 0.1) headers.push(pick(headers));
    try {
      parseRegistration(headers);
      accepted += 1;
    } catch (error) {
      expect(error).toMatchObject({ code: "invalid_argument", reason: "BAD_METADATA" });
    }
  }
  expect(accepted).toBeGreaterThan(FRAMES / 10);
});

/** A gRPC message: a flag, a length, the bytes (grpc/grpc doc/PROTOCOL-HTTP2.md). */
function message(bytes: Uint8Array, length = bytes.length, flag = 0): Buffer {
  const head = Buffer.alloc(5);
  head[0] = flag;
  head.writeUInt32BE(length >>> 0, 1);
  return Buffer.concat([head, bytes]);
}

function randomWire(): Buffer {
  const frame = toBinary(EnvelopeSchema, envelopeOf(randomFrame()));
  return pick([
    () => message(frame),
    () => message(frame),
    () => message(mutated(frame)),
    () => message(frame, frame.length + 1000),
    () => message(frame, 0xffff_ffff),
    () => message(frame, 5 * 1024 * 1024),
    () => message(frame, frame.length, pick([1, 2, 0x80])),
    () => Buffer.from(randomBytes(1000)),
  ])();
}

describe("random bytes on the wire", () => {
  test("end their own stream, with a status; a worker beside them is served", async () => {
    const control = await startControl();
    const worker = startWorker({ port: control.port });
    const good = await control.next();
    const statuses = new Map<string, number>();
    try {
      for (let round = 0; round < 40; round += 1) {
        const session = connect(`http://127.0.0.1:${control.port}`);
        session.on("error", () => undefined);
        const status = await wildStream(session);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        session.destroy();
        const bad = await control.next();
        expect((await bad.closed) !== undefined).toBe(true);
        expect(bad.servedCalls).toBe(0);
        await good.call(FS_STAT, {});
      }
      console.log([...statuses]);
      // INVALID_ARGUMENT and RESOURCE_EXHAUSTED: what PROTOCOL.md says.
      expect([...statuses.keys()].filter((each) => !/^(0|3|8|reset)$/.test(each))).toEqual([]);
      expect(statuses.get("3")).toBeGreaterThan(0);
      expect(statuses.get("8")).toBeGreaterThan(0);
      good.close();
    } finally {
      worker.kill("SIGKILL");
      await worker.exited;
      await control.close();
    }
  });
});

/** Registers, sends random messages, and gives the grpc-status that ends the stream. */
async function wildStream(session: ClientHttp2Session): Promise<string> {
  const stream = session.request({
    ":method": "POST",
    ":path": "/outrigger.v1.WorkerBridge/Connect",
    "content-type": "application/grpc",
    te: "trailers",
    authorization: "Bearer good",
    "x-worker-id": "wild",
  });
  const ended = new Promise<string>((resolve) => {
    stream.on("trailers", (trailers) => resolve(`${trailers["grpc-status"]}`));
    stream.on("close", () => resolve("reset"));
    stream.on("error", () => resolve("reset"));
  });
  stream.resume();
  for (let sent = 0; sent < 30 && !stream.destroyed; sent += 1) {
    const isTaken = await new Promise<boolean>((resolve) => {
      stream.write(randomWire(), (error) => resolve(error === null || error === undefined));
      void ended.then(() => resolve(false));
    });
    if (!isTaken) break;
  }
  if (!stream.destroyed) stream.end();
  return await ended;
}
