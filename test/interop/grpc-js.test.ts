// @grpc/grpc-js on Node, the gRPC that most write in JavaScript: as a worker of our control plane, and as
// the control plane of `cprg worker`.

import { afterEach, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { EXEC_START, FS_UPLOAD, WORKER_CLAIM, WORKER_DRAIN } from "../../src/bridge/methods.ts";
import { type Control, jsonLines, startControl } from "../bridge/control.ts";
import { requireHost } from "../helpers/host.ts";
import { refusal } from "../worker/ground.ts";
import { startWorkerProcess, type WorkerProcess } from "../worker/process.ts";

const here = (name: string): string => join(import.meta.dir, name);
const VECTORS = JSON.parse(
  readFileSync(join(import.meta.dir, "../../proto/golden/vectors.json"), "utf8"),
).length as number;
const host = requireHost({ linux: true, programs: ["node"] });
const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

type Said = Readonly<Record<string, unknown>>;

/** A script on Node, and what it says. */
function node(script: string, ...words: string[]) {
  const child = Bun.spawn(["node", here(script), ...words], {
    env: { PATH: process.env["PATH"] ?? "" },
    stdout: "pipe",
    stderr: "inherit",
  });
  undo.push(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  const lines = jsonLines(child.stdout)[Symbol.asyncIterator]();
  const next = async (event: string): Promise<Said> => {
    for (;;) {
      const { done, value } = await lines.next();
      if (done) throw new Error(`${script} ended before ${event}`);
      if ((value as Said)["event"] === event) return value as Said;
    }
  };
  return { child, next };
}

host.test("a worker on grpc-js: claim, program, cancel, upload, heartbeat, drain", async () => {
  const control: Control = await startControl();
  undo.push(() => control.close());
  const { child, next } = node("grpc-js-worker.mjs", `${control.port}`, "good");
  expect((await next("vectors"))["count"]).toBe(VECTORS);
  const mux = await control.next();
  await next("connected");
  const claim = { taskId: "t1", epoch: 7 };
  const granted = await mux.call(WORKER_CLAIM, { ...claim, env: { A: "é" } });
  expect(granted).toMatchObject({ root: "/r", home: "/h" });
  expect(await next("claimed")).toMatchObject({ ...claim, env: { A: "é" } });
  let output = "";
  for await (const { stdout } of mux.stream(EXEC_START, { claim, command: "said" })) {
    output += new TextDecoder().decode(stdout);
  }
  expect(output).toBe("said\n");
  const call = mux.stream(EXEC_START, { claim, command: "hang" });
  const items = call[Symbol.asyncIterator]();
  await items.next();
  call.cancel("enough");
  expect(await refusal(items.next())).toBe("canceled");
  const chunks = [
    { head: { path: "x", transfer: null, merge: false, parents: false } },
    ...Array.from({ length: 20 }, () => ({ chunk: new Uint8Array(200_000) })),
  ];
  expect(await mux.upload(FS_UPLOAD, chunks)).toEqual({ bytes: 4_000_000, entries: 1 });
  await mux.call(WORKER_DRAIN, {});
  expect((await next("status"))["code"]).toBe(0);
  expect(await child.exited).toBe(0);
  expect(mux.counts).toMatchObject({ dropped: 0, refused: 0 });
});

host.test("`cprg worker` under a control plane on grpc-js", async () => {
  const { next } = node("grpc-js-control.mjs");
  expect((await next("vectors"))["count"]).toBe(VECTORS);
  const { port } = (await next("listening")) as { port: number };
  const worker: WorkerProcess = startWorkerProcess(port);
  undo.push(() => worker.end());
  const seen = await next("seen");
  expect(seen["lists"]).toContain("exec.Start");
  expect(seen["early"]).toMatchObject({ error: expect.stringContaining("[NOT_CLAIMED]") });
  expect(seen["claim"]).toMatchObject({ response: { os: "linux" } });
  expect(seen["ran"]).toMatchObject({
    output: "of claim\n",
    exit: { exitCode: 3, reason: "exit" },
  });
  expect(seen["bigBytes"]).toBe(3_000_000);
  expect(seen["uploaded"]).toEqual({ response: { bytes: 300_000, entries: 1 } });
  expect(seen["read"]).toBe("AB");
  expect(seen["cancelled"]).toStartWith("canceled: ");
  expect(seen["released"]).toEqual({ response: { killed: 0 } });
  expect(seen["unknown"]).toMatchObject({ error: expect.stringContaining("unimplemented: ") });
  // Drained, it ends its half, takes the status, and is done.
  await next("half-closed");
  expect(await worker.exited).toBe(0);
});
