// An engine with directories and ids of its own, and the promise that nothing of it stays behind.

import { afterAll, afterEach, beforeAll, setDefaultTimeout } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEFAULT_LIMITS, LIMIT_RULES, type Limits, parseLimits } from "../../src/core/limits.ts";
import { silentLog } from "../../src/core/log.ts";
import type { Outcome } from "../../src/core/outcome.ts";
import type { Exec, ExecLease, ExecNotice, ExecSpec } from "../../src/provider/contract.ts";
import { type EngineOptions, type LocalEngine, openLocalEngine } from "../../src/sandbox/engine.ts";
import type { IdRange } from "../../src/sandbox/ids.ts";
import { paced, TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, type Left, takeSnapshot } from "./snapshot.ts";

/** Python is named: the one on the PATH of this machine may be a shim. */
export const PYTHON = "/usr/bin/python3";
export const ENV = { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: "/home/agent", LANG: "C.UTF-8" };

/** Ids that no other test process on this host uses at the same time. */
export const ID_RANGE: IdRange = { base: 1_700_000_000 + (process.pid % 50_000) * 400, count: 400 };

/** The defaults of time for a machine as slow as this one, up to the ceilings. */
const PACED: Partial<Limits> = {
  wall_seconds: Math.min(paced(DEFAULT_LIMITS.wall_seconds), LIMIT_RULES.wall_seconds.ceiling),
  cpu_seconds: Math.min(paced(DEFAULT_LIMITS.cpu_seconds), LIMIT_RULES.cpu_seconds.ceiling),
};

/** Directories for engines. */
export interface TestDirs {
  readonly top: string;
  readonly run: string;
  readonly data: string;
}

export function makeDirs(): TestDirs {
  const top = mkdtempSync(join(tmpdir(), "cprg-test-"));
  return { top, run: join(top, "run"), data: join(top, "data") };
}

/** Opens an engine; what is not said is as in production, but for directories and ids. */
export function openTestEngine(
  dirs: TestDirs,
  options: Partial<EngineOptions> = {},
): Promise<LocalEngine> {
  return openLocalEngine({
    runDir: dirs.run,
    dataDir: dirs.data,
    mode: "auto",
    idRange: ID_RANGE,
    idDirectory: join(dirs.run, "ids"),
    log: silentLog,
    ...options,
  });
}

/** What the tests of a file share. */
export interface Bench {
  readonly dirs: TestDirs;
  readonly engine: LocalEngine;
  /** Opens a lease with these limits over the defaults. */
  open(limits?: Partial<Limits>): Promise<ExecLease>;
  /** Opens a lease, runs a Python program in it, and releases it. */
  python(code: string, options?: RunOptions): Promise<Ran>;
}

export interface RunOptions {
  readonly limits?: Partial<Limits>;
  readonly spec?: Partial<ExecSpec>;
  /** Called with the exec as soon as it runs. */
  onStart?(exec: Exec, lease: ExecLease): void | Promise<void>;
}

/** An exec that has ended. */
export interface Ran {
  readonly outcome: Outcome;
  readonly stdout: string;
  readonly stderr: string;
  readonly notices: readonly ExecNotice[];
}

/** One engine for the tests of a file; the host is compared before and after all of them. */
export function useEngine(options: Partial<EngineOptions> = {}): Bench {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  let engine: LocalEngine | undefined;
  let before: Left | undefined;
  beforeAll(async () => {
    await warmUp(dirs);
    before = takeSnapshot(dirs, ID_RANGE);
    engine = await openTestEngine(dirs, options);
  });
  afterAll(async () => {
    try {
      await engine?.close();
      const instances = engine === undefined ? [] : [engine.instance];
      const look = (): Left => takeSnapshot(dirs, ID_RANGE, instances);
      await expectNothingLeft(before ?? look(), look);
    } finally {
      rmSync(dirs.top, { recursive: true, force: true });
    }
  });
  const current = (): LocalEngine => {
    if (engine === undefined) throw new Error("the engine is not open yet");
    return engine;
  };
  const leases: ExecLease[] = [];
  // A test that fails half-way must not make others fail.
  afterEach(async () => {
    await Promise.all(leases.splice(0).map((lease) => lease.release()));
  });
  const open = async (limits: Partial<Limits> = {}): Promise<ExecLease> => {
    const lease = await current().open(
      await current().reserve(parseLimits({ ...PACED, ...limits })),
    );
    leases.push(lease);
    return lease;
  };
  return {
    dirs,
    get engine() {
      return current();
    },
    open,
    python: async (code, runOptions = {}) => {
      const lease = await open(runOptions.limits);
      try {
        await lease.putFile("/workspace/main.py", Buffer.from(code));
        const exec = await lease.exec({
          executable: PYTHON,
          arguments: ["/workspace/main.py"],
          variables: ENV,
          ...runOptions.spec,
        });
        await runOptions.onStart?.(exec, lease);
        return await finish(exec);
      } finally {
        await lease.release();
      }
    },
  };
}

/** Loads what stays for the life of the process: the library, and the runtime's own descriptors. */
export async function warmUp(dirs: TestDirs): Promise<void> {
  const engine = await openTestEngine(dirs);
  const lease = await engine.open(await engine.reserve(parseLimits(undefined)));
  await lease.invoke({ executable: "/bin/true" });
  await lease.release();
  await engine.close();
}

/** Reads everything and waits for the outcome. */
export async function finish(exec: Exec): Promise<Ran> {
  const notices: ExecNotice[] = [];
  const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  for await (const notice of exec.notices) {
    if (notice.type === "output") parts[notice.channel].push(notice.bytes);
    else notices.push(notice);
  }
  return {
    outcome: await exec.outcome,
    stdout: Buffer.concat(parts.stdout).toString(),
    stderr: Buffer.concat(parts.stderr).toString(),
    notices,
  };
}

/** An exec that has printed something and can be read on. */
export interface PartlyRead {
  until(wanted: string): Promise<void>;
  /** Everything after that, to the end. */
  rest(): Promise<string>;
}

/** Reads until a text has come on either stream; fails when the exec ends before. */
export async function readUntil(exec: Exec, wanted: string): Promise<PartlyRead> {
  const reader = exec.notices[Symbol.asyncIterator]();
  const next = async (): Promise<string | null> => {
    const { done, value } = await reader.next();
    if (done) return null;
    return value.type === "output" ? Buffer.from(value.bytes).toString() : "";
  };
  // What came in one piece with the wanted text, and after it, is for the next look.
  let unread = "";
  const readTo = async (text: string): Promise<void> => {
    while (!unread.includes(text)) {
      const more = await next();
      if (more === null) throw new Error(`ended before "${text}": ${unread}`);
      unread += more;
    }
    unread = unread.slice(unread.indexOf(text) + text.length);
  };
  await readTo(wanted);
  return {
    until: readTo,
    rest: async () => {
      let rest = unread;
      for (let more = await next(); more !== null; more = await next()) rest += more;
      return rest;
    },
  };
}

/** A guest program of test/fixtures. */
export function fixture(name: string): string {
  return readFileSync(join(import.meta.dir, "../fixtures", name), "utf8");
}

/** Waits until a condition holds; fails after a while, naming it. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
): Promise<void> {
  const deadlineMs = performance.now() + paced(20_000);
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
