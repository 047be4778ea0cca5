// The worker-backed provider keeps the contract, over TCP to a worker in another process.

import { afterAll, beforeAll, describe, setDefaultTimeout } from "bun:test";
import { workerSandboxProvider } from "../../src/control-plane/worker-provider.ts";
import { requireHost } from "../helpers/host.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  type WorkerProcess,
} from "../worker/process.ts";
import { describeSandboxProvider } from "./sandbox-provider.ts";

function workerKeeps(isIsolated: boolean): void {
  setDefaultTimeout(60_000);
  let plane: Plane;
  let worker: WorkerProcess;
  beforeAll(async () => {
    plane = await startPlane();
    worker = startWorkerProcess(plane.port, { isIsolated });
  });
  afterAll(async () => {
    worker.kill("SIGTERM");
    await worker.exited;
    await worker.end();
    await plane.close();
  });
  describeSandboxProvider("the worker provider", () => ({
    provider: workerSandboxProvider(plane.registry),
    openSandboxes: () => plane.registry.claimCount,
  }));
}

describe("a worker in another process", () => workerKeeps(false));

requireHost({ sandbox: true }).describe("a worker in another process, with sandboxes", () =>
  workerKeeps(true),
);
