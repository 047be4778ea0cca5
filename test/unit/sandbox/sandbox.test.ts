import { describe, expect, test } from "bun:test";
import { mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CprgError } from "../../../src/core/errors.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { MAP, REPORT, SIZES } from "../../../src/sandbox/layout.ts";
import { type SandboxHost, startSandbox } from "../../../src/sandbox/sandbox.ts";

const REFUSED = new CprgError("failed_precondition", "Cannot start a sandbox: clone: EPERM", {
  reason: "SETUP_FAILED",
  hint: "Allow user namespaces",
  setup: { step: "clone", index: 0, errno: 1, errnoName: "EPERM" },
});

/** A host on which no sandbox starts. */
function refusingHost(remove: () => Promise<void>) {
  const seen = { released: 0 };
  const host = {
    native: {
      socketpair: () => {
        throw REFUSED;
      },
    },
    ids: { take: () => ({ init: 1, program: 2, release: () => (seen.released += 1) }) },
    groups: { createSandbox: async () => ({ remove, launched: () => undefined }) },
    idMap: MAP.parent,
  } as unknown as SandboxHost;
  return { host, seen };
}

const start = (host: SandboxHost) =>
  startSandbox(host, { name: "s", limits: DEFAULT_LIMITS }).catch((error: unknown) => error);

describe("startSandbox()", () => {
  test("throws what failed, and undoes the rest", async () => {
    const { host, seen } = refusingHost(() => Promise.resolve());
    expect(await start(host)).toBe(REFUSED);
    expect(seen.released).toBe(1);
  });

  test("throws what failed also where something cannot be undone, with both as its cause", async () => {
    const stuck = new CprgError("internal", "Cannot remove the group");
    const { host, seen } = refusingHost(() => Promise.reject(stuck));
    const error = (await start(host)) as CprgError;
    const { code, message, reason, hint, setup, retryable } = REFUSED;
    expect(error).toMatchObject({ code, message, reason, hint, setup, retryable });
    expect((error.cause as AggregateError).errors).toEqual([REFUSED, stuck]);
    expect(seen.released).toBe(1);
  });
});

describe("a sandbox whose process 1 cannot be reaped", () => {
  test("says so to whoever asks, and ends no server where nobody does", async () => {
    const directory = mkdtempSync(join(tmpdir(), "cprg-test-sandbox-"));
    const rejections: unknown[] = [];
    const note = (error: unknown): void => void rejections.push(error);
    process.on("unhandledRejection", note);
    try {
      const sandbox = await startSandbox(unreapableHost(directory), {
        name: "s",
        limits: DEFAULT_LIMITS,
      });
      await sandbox.channel.ended;
      // Rejections that nobody handles are told after a turn.
      for (let turn = 0; turn < 3; turn += 1) await new Promise((next) => setImmediate(next));
      expect(rejections).toEqual([]);
      expect(await sandbox.death.catch((error: unknown) => error)).toMatchObject({
        message: "waitid: ECHILD",
      });
      expect(await sandbox.destroy().catch((error: unknown) => error)).toBeInstanceOf(Error);
      expect(sandbox.workspaceFd).toBe(-1);
    } finally {
      process.off("unhandledRejection", note);
      rmSync(directory, { recursive: true });
    }
  });
});

/** A host whose process 1 says that it is ready, and ends. */
function unreapableHost(directory: string): SandboxHost {
  const file = join(directory, "reports");
  const reports = new Uint8Array(2 * SIZES.report);
  const view = new DataView(reports.buffer);
  view.setUint32(0, REPORT.ready, true);
  view.setUint32(SIZES.report, REPORT.launched, true);
  writeFileSync(file, reports);
  const open = (path = "/dev/null"): number => openSync(path, "r");
  return {
    native: {
      socketpair: () => [open(), open()],
      pipe: () => [open(file), open()],
      launch: () => ({ take: () => ({ pid: 0, pidfd: open(), arena: 0n }) }),
      launchEnd: () => undefined,
      send: () => true,
      receiveFds: () => [open()],
      signal: () => true,
      reap: () => {
        throw new Error("waitid: ECHILD");
      },
    },
    ids: { take: () => ({ init: 1, program: 2, release: () => undefined }) },
    groups: {
      createSandbox: async () => ({
        launchDirFd: -1,
        launchFds: [],
        launched: () => undefined,
        prepare: () => undefined,
        remove: () => Promise.resolve(),
      }),
    },
    plans: { encoded: () => new Uint8Array(1) },
    idMap: MAP.parent,
  } as unknown as SandboxHost;
}
