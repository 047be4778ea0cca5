// The local engine of the sources, with a run directory of its own, for rows that need no server.

import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEFAULT_LIMITS } from "../../src/core/limits.ts";
import { silentLog } from "../../src/core/log.ts";
import { type LocalEngine, openLocalEngine } from "../../src/sandbox/engine.ts";

/** An engine and its directories. */
export interface BenchEngine extends AsyncDisposable {
  readonly engine: LocalEngine;
  /** Opens a sandbox, runs /bin/true in it, and removes it. */
  runTrue(): Promise<void>;
}

/**
 * Opens an engine whose directories go with it.
 *
 * @param pool sandboxes that it keeps built
 */
export async function openBenchEngine(pool = 0): Promise<BenchEngine> {
  const path = mkdtempSync(join(tmpdir(), "cprg-bench-"));
  // Every sandbox's init passes through the run directory's parents as another user.
  chmodSync(path, 0o711);
  const engine = await openLocalEngine({
    runDir: join(path, "run"),
    dataDir: join(path, "data"),
    mode: "auto",
    interpreters: { python: "/usr/bin/python3" },
    pool,
    log: silentLog,
  });
  return {
    engine,
    runTrue: async () => await runTrue(engine),
    [Symbol.asyncDispose]: async () => {
      await engine.close();
      rmSync(path, { recursive: true, force: true });
    },
  };
}

async function runTrue(engine: LocalEngine): Promise<void> {
  const lease = await engine.open(await engine.reserve(DEFAULT_LIMITS));
  try {
    const spec = { executable: "/bin/true", arguments: [], variables: { PATH: "/usr/bin:/bin" } };
    const exec = await lease.exec(spec);
    for await (const notice of exec.notices) {
      if (notice.type === "output") throw new Error("/bin/true printed something");
    }
    const outcome = await exec.outcome;
    if (outcome.reason !== "exit" || outcome.exitCode !== 0) {
      throw new Error(`/bin/true: ${JSON.stringify(outcome)}`);
    }
  } finally {
    await lease.release();
  }
}
