// Our dialer and mux under the scripted control plane in Python.

import { afterEach, expect } from "bun:test";
import { startWorker, type WorkerProcess } from "../bridge/control.ts";
import { requireHost } from "../helpers/host.ts";
import { type ControlPlaneStub, startStub } from "./stub.ts";

const host = requireHost({ programs: ["protoc"] });
const CREDIT_BYTES = 256 * 1024;
const running: { stop(): Promise<void> }[] = [];

afterEach(async () => {
  for (const each of running.splice(0)) await each.stop();
});

async function stubbed(config?: Record<string, unknown>): Promise<ControlPlaneStub> {
  const stub = await startStub(config);
  running.push(stub);
  return stub;
}

function worker({ port }: ControlPlaneStub): WorkerProcess {
  const started = startWorker({ port });
  running.push({
    stop: async () => {
      started.kill("SIGKILL");
      await started.exited;
    },
  });
  return started;
}

/** A stub and our worker, which has registered. */
async function pair(config?: Record<string, unknown>): Promise<[ControlPlaneStub, WorkerProcess]> {
  const stub = await stubbed(config);
  const started = worker(stub);
  await stub.step("accept");
  expect(await started.line()).toHaveProperty("registered");
  return [stub, started];
}

host.test("calls of each kind, with credit", async () => {
  const [{ step }] = await pair();
  const stat = await step("call", { method: "fs.Stat" });
  expect(stat.end?.response).toHaveProperty("stat");
  const exec = await step("exec", { argv: ["100"] });
  expect(exec.end).toMatchObject({ items: 100, length: 100 * 65_536 });
  const upload = await step("upload", { fill: 3_000_000 });
  expect(upload.end?.response).toEqual({ bytes: "3000000" });
  const grants = upload.meanwhile.filter(({ event }) => event === "credit");
  expect(grants.length).toBeGreaterThan(10);
  expect(grants.every((grant) => grant["upload"] === true)).toBe(true);
});

host.test("items stop at the credit, go on with more, and end with a cancel", async () => {
  const [{ step }] = await pair({ grant: false });
  const call = { as: "run" };
  await step("exec", { argv: ["1000"], wait: "none", ...call });
  await step("wait", { until: "bytes", count: CREDIT_BYTES, ...call });
  await step("barrier");
  const held = await step("wait", { until: "bytes", ...call });
  expect(held.bytes).toBeLessThan(CREDIT_BYTES + 2 * 65_536);
  await step("grant", { bytes: CREDIT_BYTES, ...call });
  await step("wait", { until: "bytes", count: 2 * CREDIT_BYTES, ...call });
  const { end } = await step("cancel", call);
  expect(end?.error).toStartWith("canceled: ");
});

host.test("a control plane that lists nothing", async () => {
  const [{ step }] = await pair({ methods: [] });
  expect((await step("exec", { argv: ["50"] })).end).toMatchObject({ items: 50 });
  const upload = await step("upload", { fill: 3_000_000 });
  expect(upload.end?.response).toEqual({ bytes: "3000000" });
});

host.test("bad frames are answered as the table says, late ones not at all", async () => {
  const [{ step }] = await pair();
  const silent = async (frame: Record<string, unknown>): Promise<void> => {
    const { meanwhile } = await step("frame", frame);
    const after = [...meanwhile, ...(await step("barrier")).meanwhile];
    expect(after.filter(({ event }) => event === "stray")).toEqual([]);
  };
  const bytes = (...values: number[]): string => Buffer.from(values).toString("base64");
  for (const kind of [0, 4, 77]) await silent({ id: "k", method: "fs.Stat", kind });
  await silent({ method: "fs.Stat" });
  await silent({ id: "x".repeat(129), method: "fs.Stat" });
  await silent({ id: "none" });
  await silent({ id: "none", kind: 2 });
  await silent({ id: "none", kind: 3, error: "internal: no" });
  await silent({ method: "/internal/cancel", payload: bytes(0xff, 0xff) });
  await silent({ method: "/internal/credit", payload: bytes(0xff) });
  for (const [method, payload, code] of [
    ["m".repeat(129), "", "invalid_argument"],
    ["no.Such", "", "unimplemented"],
    ["fs.Stat", bytes(0xff, 0xff), "invalid_argument"],
    ["fs.Upload", bytes(0xff), "invalid_argument"],
  ] as const) {
    const id = `bad ${method} ${payload}`.slice(0, 100);
    const { end } = await step("frame", { id, as: id, method, payload });
    expect(end?.error).toStartWith(`${code}: `);
  }
  await silent({ id: "bad no.Such ", fill: 10, times: 1500 });
});

host.test("an upload that is answered early", async () => {
  const [{ step }] = await pair();
  const call = { id: "up", as: "up", method: "fs.Upload" };
  const { end } = await step("frame", { ...call, payload: Buffer.from([0xff]).toString("base64") });
  expect(end?.error).toStartWith("invalid_argument: ");
  await step("frame", { id: "up", fill: 100, times: 1500 });
  await step("frame", { id: "up", method: "fs.Upload", fill: 100 });
  await step("frame", { id: "up" });
  const { meanwhile } = await step("barrier");
  expect(meanwhile.filter(({ event }) => event === "stray")).toEqual([]);
});

host.test("what is no Envelope, or too large, or too often wrong, ends the stream", async () => {
  for (const [name, fields, code, reason] of [
    ["raw", { base64: "////" }, "invalid_argument", "PROTOCOL_ERROR"],
    ["raw", { fill: 4 * 1024 * 1024 + 1 }, "resource_exhausted", "OVERSIZE"],
    ["frame", { kind: 0, times: 1001 }, "invalid_argument", "PROTOCOL_ERROR"],
  ] as const) {
    const [{ step }, { line }] = await pair();
    await step(name, fields);
    await step("gone");
    expect(await line()).toEqual({ closed: { code, reason } });
  }
});

host.test("refusals and ends are heard with code and reason", async () => {
  const stub = await stubbed();
  await stub.step("refuse", { code: "permission_denied", message: "[ID_TAKEN] no" });
  const refused = worker(stub);
  expect(await refused.line()).toEqual({
    refused: { code: "permission_denied", reason: "ID_TAKEN", message: "no" },
  });
  expect((await stub.step("accept"))["refused"]).toBe(true);
  const [{ step }, { line }] = await pair();
  await step("close", { code: "aborted", message: "[REPLACED] no" });
  expect(await line()).toEqual({ closed: { code: "aborted", reason: "REPLACED" } });
});

host.test("a bad header of the control plane counts as absent", async () => {
  const stub = await stubbed({ heartbeat_seconds: 0, secret: "no secret" });
  expect(await worker(stub).line()).toMatchObject({
    registered: { heartbeatSeconds: 30, version: "stub/1" },
  });
});
