// A worker that freezes or dies in the middle of a call, and one that never answers: what was asked
// of it ends, the lease is lost, and the registry holds nothing of it.

import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dial } from "../../src/bridge/dialer.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { WORKER_CLAIM } from "../../src/bridge/methods.ts";
import { openMux } from "../../src/bridge/mux.ts";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { cprgPath } from "../e2e/cprg.ts";
import { until } from "./ground.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  TOKEN,
  type WorkerProcess,
} from "./process.ts";

const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function pair(): Promise<{ plane: Plane; worker: WorkerProcess }> {
  const plane = await startPlane();
  undo.push(() => plane.close());
  const worker = startWorkerProcess(plane.port, { program: [cprgPath()] });
  undo.push(() => worker.end());
  // Only one that has been asked what it still holds is claimed.
  const first = await plane.registry.claim({ taskId: "first", epoch: 1 });
  await first.release();
  return { plane, worker };
}

/** What a promise came to, which must come to something. */
async function settled(promise: Promise<unknown>): Promise<"kept" | "refused"> {
  return await promise.then(
    () => "kept" as const,
    () => "refused" as const,
  );
}

for (const signal of ["SIGSTOP", "SIGKILL"] as const) {
  test(`${signal} during a claim: it is refused, and nothing is held`, async () => {
    const { plane, worker } = await pair();
    const claiming = settled(plane.registry.claim({ taskId: "t1", epoch: 1 }));
    worker.kill(signal);
    expect(await claiming).toBe("refused");
    await until(() => plane.registry.connected.length === 0);
    expect(plane.registry.claimCount).toBe(0);
  });

  test(`${signal} during an exec: it ends worker_lost`, async () => {
    const { plane, worker } = await pair();
    const claimed = await plane.registry.claim({ taskId: "t1", epoch: 1 });
    const lease = new WorkerLease(claimed, {});
    const exec = await lease.exec({
      executable: "sh",
      arguments: ["-c", "echo up; exec sleep 1000"],
      variables: { PATH: "/usr/bin:/bin" },
    });
    for await (const notice of exec.notices) if (notice.type === "output") break;
    worker.kill(signal);
    expect(await exec.outcome).toMatchObject({ reason: "worker_lost", exitCode: null });
    await lease.release();
    expect([plane.registry.connected.length, plane.registry.claimCount]).toEqual([0, 0]);
    process.kill(exec.pid, "SIGKILL");
  });

  test(`${signal} during an upload: it fails, and the lease can be let go`, async () => {
    const { plane, worker } = await pair();
    const lease = new WorkerLease(await plane.registry.claim({ taskId: "t1", epoch: 1 }), {});
    const directory = mkdtempSync(join(tmpdir(), "cprg-lost-"));
    undo.push(() => rmSync(directory, { recursive: true, force: true }));
    writeFileSync(join(directory, "file"), Buffer.alloc(64 * 1024 * 1024));
    const uploaded = settled(lease.upload(join(directory, "file"), `${lease.root}/file`));
    worker.kill(signal);
    expect(await uploaded).toBe("refused");
    await lease.release();
    expect([plane.registry.connected.length, plane.registry.claimCount]).toEqual([0, 0]);
  });
}

/** A worker as the first ones were: it lists nothing, and its claim is answered as given. */
async function plainWorker(port: number, claim: () => Promise<object>): Promise<void> {
  const handlers = new Handlers().unary(WORKER_CLAIM, async () => await claim());
  const { stream, peer } = await dial({
    host: "127.0.0.1",
    port,
    token: TOKEN,
    registration: {
      workerId: "plain",
      name: "",
      labels: {},
      methods: [],
      version: "",
      slots: 1,
      secret: undefined,
      claims: [],
    },
  });
  const mux = openMux(stream, { handlers, own: [], peer });
  undo.push(() => mux.close());
}

test("a plain worker without any feature is claimed; its calls that are unknown are refused", async () => {
  const plane = await startPlane();
  undo.push(() => plane.close());
  await plainWorker(plane.port, async () => ({ root: "/r", home: "/h", os: "linux", arch: "x" }));
  const claimed = await plane.registry.claim({ taskId: "t1", epoch: 1 });
  const lease = new WorkerLease(claimed, {});
  expect(await settled(lease.invoke({ executable: "true", arguments: [] }))).toBe("refused");
  await claimed.release();
  expect(plane.registry.claimCount).toBe(0);
});

test("a worker that never answers a claim: the caller's patience ends it, and the slot is free", async () => {
  const plane = await startPlane();
  undo.push(() => plane.close());
  await plainWorker(plane.port, () => new Promise(() => undefined));
  const patience = new AbortController();
  const waiting = settled(
    plane.registry.claim({ taskId: "t1", epoch: 1 }, { signal: patience.signal }),
  );
  await until(() => plane.registry.claimCount === 1);
  patience.abort(new Error("enough"));
  expect(await waiting).toBe("refused");
  expect(plane.registry.claimCount).toBe(0);
});
