import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serveHere } from "../../../src/cli/serve-here.ts";
import { memoryTerminal } from "./memory-terminal.ts";

test("serveHere() ends when the store's worker dies", async () => {
  const folder = mkdtempSync(join(tmpdir(), "cprg-serve-"));
  const workers: Worker[] = [];
  const WorkerClass = globalThis.Worker;
  globalThis.Worker = class extends WorkerClass {
    constructor(url: string | URL) {
      super(url);
      workers.push(this);
    }
  };
  try {
    const terminal = memoryTerminal({
      env: { CPRG_DATA_DIR: join(folder, "data"), CPRG_RUN_DIR: join(folder, "run") },
      uid: process.geteuid?.() ?? 0,
    });
    const served = serveHere("serve", { addr: "127.0.0.1:0", sandbox: "off" }, terminal).then(
      (code) => ({ code }),
      (error: unknown) => error,
    );
    while (!terminal.out().includes("listening on")) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    for (const worker of workers) worker.terminate();
    expect(await served).toMatchObject({ code: "unavailable", reason: "STORE_DIED" });
  } finally {
    globalThis.Worker = WorkerClass;
    rmSync(folder, { recursive: true, force: true });
  }
}, 15_000);
