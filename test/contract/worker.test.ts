// The worker-backed provider keeps the contract, over TCP to a worker in another process.

import { afterAll, beforeAll, describe, setDefaultTimeout } from "bun:test";
import { workerSandboxProvider } from "../../src/control-plane/worker-provider.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  type WorkerProcess,
} from "../worker/process.ts";
import { describeSandboxProvider } from "./sandbox-provider.ts";

describe("a worker in another process", () => {
  setDefaultTimeout(20_000);
  let plane: Plane;
  let worker: WorkerProcess;
  beforeAll(async () => {
    plane = await startPlane();
    worker = startWorkerProcess(plane.port);
  });
  afterAll(async () => {
    await worker.end();
    await plane.close();
  });

  describeSandboxProvider("the worker provider", () => ({
    provider: workerSandboxProvider(plane.registry),
    openSandboxes: () => plane.registry.claimCount,
  }));
});
