// The reference worker in Python, driven by our listener and mux.

import { afterEach, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Mux } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import type { Registration } from "../../src/bridge/metadata.ts";
import {
  EXEC_INPUT,
  EXEC_START,
  FS_DOWNLOAD,
  FS_LIST_DIR,
  FS_READ_FILE,
  FS_STAT,
  FS_UPLOAD,
  FS_WRITE_FILE,
  HEARTBEAT,
  WORKER_CLAIM,
  WORKER_DRAIN,
  WORKER_RELEASE,
} from "../../src/bridge/methods.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { ExecStartRequest } from "../../src/gen/messages.ts";
import {
  type Control,
  type ControlOptions,
  startControl,
  startProcess,
  type WorkerProcess,
} from "../bridge/control.ts";
import { FULL } from "../bridge/peers.ts";
import { requireHost } from "../helpers/host.ts";

const WORKER = join(import.meta.dir, "reference_worker.py");
const CLAIM = { taskId: "t1", epoch: 2 };
const host = requireHost({ linux: true, programs: ["protoc"] });
const workers: WorkerProcess[] = [];
const controls: Control[] = [];

afterEach(async () => {
  // The second signal kills what a claim still runs.
  for (const worker of workers.splice(0)) {
    worker.kill("SIGTERM");
    worker.kill("SIGINT");
    await worker.exited;
  }
  for (const control of controls.splice(0)) await control.close();
});

async function listening(options: ControlOptions = {}): Promise<Control> {
  const handlers = new Handlers().unary(HEARTBEAT, ({ claims }) => ({ renewed: [...claims] }));
  const control = await startControl({ lists: FULL, handlers, heartbeatSeconds: 1, ...options });
  controls.push(control);
  return control;
}

function worker({ port }: Control, ...options: string[]): WorkerProcess {
  const common = ["--token", "good", "--delay-scale", "0.05"];
  const url = `http://127.0.0.1:${port}`;
  const started = startProcess(["/usr/bin/python3", "-B", WORKER, ...common, ...options, url]);
  workers.push(started);
  return started;
}

/** A program that is run to its end. */
async function run(
  mux: Mux,
  request: Partial<ExecStartRequest>,
): Promise<{ output: string; bytes: number; exitCode: number | undefined }> {
  let [output, bytes, expected] = ["", 0, 1];
  let exitCode: number | undefined;
  for await (const { seq, stdout, exit } of mux.stream(EXEC_START, { claim: CLAIM, ...request })) {
    expect(seq).toBe(expected);
    expected += 1;
    bytes += stdout?.length ?? 0;
    if (output.length < 1000) output += new TextDecoder().decode(stdout);
    exitCode = exit?.exitCode ?? exitCode;
  }
  return { output, bytes, exitCode };
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

/** Not of a process that only waits to be reaped (proc_pid_stat(5)). */
function isRunning(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

function refusal(code: ConstructorParameters<typeof CprgError>[0], reason?: string): CprgError {
  return new CprgError(code, "no", reason === undefined ? {} : { reason });
}

host.test("a claim from its beginning to its end", async () => {
  const control = await listening();
  const { exited } = worker(control);
  const mux = await control.next();
  expect(await failure(mux.call(FS_STAT, { claim: CLAIM }))).toMatchObject({
    code: "failed_precondition",
    reason: "NOT_CLAIMED",
  });
  const { root } = await mux.call(WORKER_CLAIM, { ...CLAIM, env: { GREETING: "hello" } });
  expect(await failure(mux.call(WORKER_CLAIM, CLAIM))).toMatchObject({
    code: "already_exists",
    reason: "ALREADY_CLAIMED",
  });
  const stale = { claim: { ...CLAIM, epoch: 1 } };
  expect(await failure(mux.call(FS_STAT, stale))).toMatchObject({
    code: "aborted",
    reason: "STALE_EPOCH",
  });
  const said = await run(mux, { command: "echo $GREETING; pwd; exit 7" });
  expect(said).toMatchObject({ output: `hello\n${root}\n`, exitCode: 7 });
  const running = mux.stream(EXEC_START, { claim: CLAIM, command: "sleep 1000" });
  await running[Symbol.asyncIterator]().next();
  expect(await mux.call(WORKER_RELEASE, { claim: CLAIM })).toEqual({ killed: 1 });
  await running.ended;
  expect(await mux.call(WORKER_DRAIN, {})).toEqual({ claims: [] });
  expect(await mux.closed).toEqual({ error: undefined });
  expect(await exited).toBe(0);
  expect(mux.counts).toMatchObject({ dropped: 0, refused: 0 });
});

async function programsAndFiles(...options: string[]): Promise<void> {
  const control = await listening();
  worker(control, ...options);
  const mux = await control.next();
  expect(mux.peer.has("/internal/credit")).toBe(options.length === 0);
  await mux.call(WORKER_CLAIM, CLAIM);
  const much = await run(mux, { command: "head -c 3000000 /dev/zero" });
  expect(much).toMatchObject({ bytes: 3_000_000, exitCode: 0 });
  const echo = run(mux, { argv: ["cat"], stdin: Buffer.from("a"), stdinOpen: true, execId: "cat" });
  const input = { claim: CLAIM, execId: "cat", input: Buffer.from("b"), close: true, offset: 1 };
  // It is known once it has been started, which nothing here has waited for.
  while ((await failure(mux.call(EXEC_INPUT, input))) !== undefined);
  expect(await echo).toMatchObject({ output: "ab", exitCode: 0 });
  const content = Buffer.alloc(700_000, "x");
  const head = {
    path: "up",
    transfer: { type: "file", mode: 0, size: content.length, linkTarget: "" },
  };
  const items = [
    { claim: CLAIM, head: { ...head, merge: false, parents: false } },
    ...[0, 200_000, 400_000, 600_000].map((at) => ({
      chunk: new Uint8Array(content.subarray(at, at + 200_000)),
    })),
  ];
  expect(await mux.upload(FS_UPLOAD, items)).toEqual({ bytes: 700_000, entries: 1 });
  // A mode of 0 is none that is absent.
  const { stat } = await mux.call(FS_STAT, { claim: CLAIM, path: "up" });
  expect(stat).toMatchObject({ type: "file", mode: 0, size: 700_000 });
  let bytes = 0;
  for await (const { chunk } of mux.stream(FS_DOWNLOAD, { claim: CLAIM, path: "up" })) {
    bytes += chunk?.length ?? 0;
  }
  expect(bytes).toBe(700_000);
  const out = { claim: CLAIM, path: "../x", content: new Uint8Array(1) };
  expect(await failure(mux.call(FS_WRITE_FILE, out))).toMatchObject({ reason: "PATH_ESCAPES" });
  await mux.call(FS_WRITE_FILE, { ...out, path: "é/x", parents: true });
  const read = await mux.call(FS_READ_FILE, { claim: CLAIM, path: "é/x" });
  expect(read).toMatchObject({ size: 1, mode: 0o644 });
  const { entries } = await mux.call(FS_LIST_DIR, { claim: CLAIM });
  expect(entries.map(({ name }) => name)).toEqual(["up", "é"]);
  expect(mux.counts).toMatchObject({ dropped: 0, refused: 0 });
}

host.test("programs and files, with credit", () => programsAndFiles());
host.test("programs and files of a worker that lists nothing", () => programsAndFiles("--plain"));

host.test("a cancel is answered when nothing runs any more", async () => {
  const control = await listening();
  worker(control);
  const mux = await control.next();
  await mux.call(WORKER_CLAIM, CLAIM);
  const command = "sleep 1000 & echo $!; exec sleep 1000";
  const call = mux.stream(EXEC_START, { claim: CLAIM, command });
  let pid = 0;
  const items = (async () => {
    for await (const { stdout } of call) {
      if (stdout === undefined) continue;
      pid = Number(new TextDecoder().decode(stdout));
      call.cancel("enough");
    }
  })();
  expect(await failure(items)).toMatchObject({ code: "canceled", message: "enough" });
  expect(isRunning(pid)).toBe(false);
});

host.test("an upload that is refused early does not harm the stream", async () => {
  const control = await listening();
  worker(control);
  const mux = await control.next();
  await mux.call(WORKER_CLAIM, CLAIM);
  const transfer = { type: "file", size: 1e6, linkTarget: "" };
  const head = { path: "../out", transfer, merge: false, parents: false };
  const chunks = Array.from({ length: 200 }, () => ({ chunk: new Uint8Array(5000) }));
  const items = [{ claim: CLAIM, head }, ...chunks];
  for (let count = 0; count < 3; count += 1) {
    expect(await failure(mux.upload(FS_UPLOAD, items))).toMatchObject({ reason: "PATH_ESCAPES" });
  }
  await mux.call(FS_STAT, { claim: CLAIM });
  expect(mux.counts).toMatchObject({ dropped: 0, refused: 0 });
});

host.test("a secret is given until it has come back once", async () => {
  const seen: (string | undefined)[] = [];
  const secretFor = ({ secret }: Registration): string | undefined => {
    seen.push(secret);
    // The first headers are lost with their stream.
    if (seen.length === 1) throw refusal("unavailable", "SHUTDOWN");
    return secret === undefined ? `secret-${seen.length}` : undefined;
  };
  const control = await listening({ secretFor });
  const { exited } = worker(control);
  const mux = await control.next();
  // A call proves that the headers have arrived.
  await mux.call(WORKER_CLAIM, CLAIM);
  mux.close(refusal("unavailable", "SHUTDOWN"));
  await (await control.next()).call(WORKER_DRAIN, {});
  expect(await exited).toBe(0);
  expect(seen).toEqual([undefined, undefined, "secret-2"]);
});

host.test("refusals stop it with their exit codes, faults without a reason do not", async () => {
  const admits: CprgError[] = [];
  const secretFor = (): undefined => {
    const error = admits.shift();
    if (error !== undefined) throw error;
    return undefined;
  };
  const control = await listening({ secretFor });
  expect(await worker(control, "--token", "bad").exited).toBe(3);
  admits.push(refusal("permission_denied", "ID_TAKEN"));
  expect(await worker(control).exited).toBe(3);
  expect(await worker(control, "--id", "-").exited).toBe(2);
  admits.push(refusal("permission_denied"), refusal("unauthenticated"), refusal("internal"));
  const { exited } = worker(control);
  (await control.next()).close(refusal("aborted", "REPLACED"));
  expect(await exited).toBe(3);
  expect(admits).toEqual([]);
});
