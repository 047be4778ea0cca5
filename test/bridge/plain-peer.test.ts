// A peer that lists nothing and is not ours: grpcio of Python, as worker and as control plane.

import { afterEach, expect } from "bun:test";
import { join } from "node:path";
import type { ServerStreamMethod, UnaryMethod } from "../../src/bridge/contract.ts";
import { dial } from "../../src/bridge/dialer.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { EXEC_START, FS_STAT, HEARTBEAT_NOTICE } from "../../src/bridge/methods.ts";
import { openMux } from "../../src/bridge/mux.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { ExecItem, ExecStartRequest } from "../../src/gen/messages.ts";
import { requireHost } from "../helpers/host.ts";
import { startControl, startProcess, type WorkerProcess } from "./control.ts";
import { FULL } from "./peers.ts";

const PEER = join(import.meta.dir, "plain_peer.py");
const host = requireHost({ programs: ["protoc"] });
const running: WorkerProcess[] = [];

afterEach(async () => {
  for (const process of running.splice(0)) {
    process.kill("SIGKILL");
    await process.exited;
  }
});

function peer(...words: string[]): WorkerProcess {
  const started = startProcess(["/usr/bin/python3", PEER, ...words]);
  running.push(started);
  return started;
}

const echo: UnaryMethod<ExecStartRequest, ExecStartRequest> = {
  ...EXEC_START,
  name: "echo",
  kind: "unary",
  response: EXEC_START.request,
};
const streaming = (name: string): ServerStreamMethod<ExecStartRequest, ExecItem> => ({
  ...EXEC_START,
  name,
});

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

host.test("drives a worker that lists nothing", async () => {
  const control = await startControl({ lists: FULL });
  const { line } = peer("worker", `127.0.0.1:${control.port}`, "good");
  const mux = await control.next();
  expect(mux.peer.has("/internal/credit")).toBe(false);
  expect(await mux.call(echo, { command: "é" })).toMatchObject({ command: "é" });
  const seen: number[] = [];
  for await (const { seq } of mux.stream(streaming("count"), {})) seen.push(seq);
  expect(seen).toEqual(Array.from({ length: 100 }, (_, index) => index + 1));
  const hang = mux.stream(streaming("hang"), {});
  const waiting = failure(hang[Symbol.asyncIterator]().next());
  hang.cancel("enough");
  // Its error has no code.
  expect(await waiting).toMatchObject({ code: "unknown", message: "cancelled on request" });
  expect(await failure(mux.call(FS_STAT, {}))).toMatchObject({ message: "unknown fs.Stat" });
  mux.close(new CprgError("unauthenticated", "gone", { reason: "TOKEN_REVOKED" }));
  expect(await line()).toEqual({
    ended: "UNAUTHENTICATED",
    details: "[TOKEN_REVOKED] gone",
    hanging: 0,
  });
  await control.close();
});

host.test("a worker that is refused hears why", async () => {
  const control = await startControl();
  const { line } = peer("worker", `127.0.0.1:${control.port}`, "bad");
  expect(await line()).toMatchObject({
    ended: "UNAUTHENTICATED",
    details: "[BAD_TOKEN] no such token",
  });
  await control.close();
});

host.test("is driven by a control plane that answers late and lists nothing", async () => {
  const { line } = peer("control");
  const port = Number((await line())?.["port"]);
  const registration = {
    workerId: "ours",
    name: "",
    labels: {},
    methods: FULL,
    version: "",
    slots: 1,
    secret: undefined,
    claims: [],
  };
  const options = { host: "127.0.0.1", port, registration };
  expect(await failure(dial({ ...options, token: "bad" }))).toMatchObject({
    code: "permission_denied",
    reason: "ID_TAKEN",
  });
  const { stream, peer: control } = await dial({ ...options, token: "good" });
  expect(control.has("/internal/credit")).toBe(false);
  let made = 0;
  const handlers = new Handlers()
    .unary(FS_STAT, () => ({}))
    .serverStream(EXEC_START, async function* (_, { signal, hasCredit }) {
      expect(hasCredit).toBe(false);
      while (!signal.aborted) {
        made += 1;
        yield { stdout: new Uint8Array(1000), seq: made };
      }
    });
  const mux = openMux(stream, { handlers, own: FULL, peer: control });
  expect(await line()).toEqual({ registered: "ours", methods: FULL.join(",") });
  await mux.notify(HEARTBEAT_NOTICE, {});
  expect(await line()).toEqual({ first: "heartbeat", kind: 1 });
  expect(await line()).toEqual({ stat: "1" });
  expect(await line()).toEqual({ end: "canceled: cancelled", kind: 3 });
  expect(await line()).toEqual({ unknown: 'unimplemented: no method "no.Such"' });
  expect(await mux.closed).toEqual({ error: undefined });
  expect(made).toBeGreaterThan(2);
});
