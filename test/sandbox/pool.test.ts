// Sandboxes that are built ahead: as tight as any other, used once, and gone with the engine.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { systemClock } from "../../src/core/clock.ts";
import type { EventDraft } from "../../src/core/event.ts";
import type { JobSpec } from "../../src/core/job.ts";
import { DEFAULT_LIMITS } from "../../src/core/limits.ts";
import { silentLog } from "../../src/core/log.ts";
import { eventOf } from "../../src/core/output-text.ts";
import { runJob } from "../../src/jobs/run.ts";
import { StopSwitch } from "../../src/jobs/stop-switch.ts";
import type { ExecProvider } from "../../src/provider/contract.ts";
import { requireHost } from "../helpers/host.ts";
import { groups, pidsOfRange } from "./snapshot.ts";
import { ENV, finish, ID_RANGE, PYTHON, until, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const POOL = 2;
const DEADLINE = "the pool is full";

const SPEC: JobSpec = {
  language: "python",
  code: "",
  args: [],
  stdinBase64: null,
  files: [],
  env: {},
  limits: DEFAULT_LIMITS,
  labels: {},
  placement: null,
  killGraceSeconds: 0,
};

host.describe("a pool of sandboxes", () => {
  const bench = useEngine({ pool: POOL });
  const filled = () => until(DEADLINE, () => bench.engine.status().pooled === POOL);
  /** Process 1 of every sandbox: nothing else runs in one that waits. */
  const waiting = (): number[] => pidsOfRange(ID_RANGE);

  const run = async (code: string, limits = {}) => {
    const lease = await bench.open(limits);
    const spec = { executable: PYTHON, arguments: ["-c", code], variables: ENV };
    const ran = await finish(await lease.exec(spec));
    await lease.release();
    return ran;
  };

  host.test("a lease takes one that waits, and another is built in its place", async () => {
    await filled();
    const before = waiting();
    expect(before).toHaveLength(POOL);
    const lease = await bench.open();
    // Nothing new was needed for it: what is there now was there, or is the successor.
    expect(before.every((pid) => waiting().includes(pid))).toBe(true);
    const ran = await finish(
      await lease.exec({ executable: PYTHON, arguments: ["-c", "print(6*7)"], variables: ENV }),
    );
    expect(ran.stdout).toBe("42\n");
    await lease.release();
    await filled();
    const after = waiting();
    expect(after).toHaveLength(POOL);
    expect(before.filter((pid) => after.includes(pid))).toHaveLength(POOL - 1);
  });

  host.test("no two programs meet: nothing of one is found by the next", async () => {
    const write = "open('/tmp/mark', 'w').write('1'); open('/workspace/mark', 'w').write('1')";
    const look = "import os; print(os.listdir('/tmp'), os.listdir('/workspace'))";
    for (let round = 0; round < 3 * POOL; round += 1) {
      await filled();
      expect((await run(`${look}\n${write}`)).stdout).toBe("[] []\n");
    }
  });

  host.test("its limits are in force", async () => {
    await filled();
    const { outcome } = await run("x = bytearray(300 << 20)");
    expect(outcome.reason).toBe("oom");
  });

  host.test("other limits get a sandbox of their own, and then a pooled one", async () => {
    await filled();
    const wanted = { mem_mb: 192, disk_mb: 64 };
    const code = "import os; s = os.statvfs('/tmp'); print(s.f_blocks * s.f_frsize >> 20)";
    expect((await run(code, wanted)).stdout).toBe("64\n");
    await filled();
    const before = waiting();
    const lease = await bench.open(wanted);
    if (!bench.engine.missing.includes("cgroup")) {
      const limits = groups([bench.engine.instance]).map((path) => limitOf(path));
      expect(limits).toContain(192);
    }
    expect(before.every((pid) => waiting().includes(pid))).toBe(true);
    await lease.release();
    await filled();
  });

  host.test("one that is killed while it waits is never given out", async () => {
    await filled();
    const [victim] = waiting();
    if (victim === undefined) throw new Error("nothing waits");
    process.kill(victim, "SIGKILL");
    await until("it is noticed", () => bench.engine.status().pooled === POOL - 1);
    expect(waiting()).not.toContain(victim);
    for (let round = 0; round < 2 * POOL; round += 1) {
      expect((await run("print('alive')")).stdout).toBe("alive\n");
    }
    await filled();
  });
});

host.describe("a job whose pooled sandbox dies before its program runs", () => {
  const bench = useEngine({ pool: POOL });

  test("runs once, in a new one", async () => {
    await until(DEADLINE, () => bench.engine.status().pooled === POOL);
    const { engine } = bench;
    const opened: boolean[] = [];
    const provider: ExecProvider = {
      name: "local",
      reserve: (limits, options) => engine.reserve(limits, options),
      open: async (reservation, options) => {
        const built = pidsOfRange(ID_RANGE);
        const lease = await engine.open(reservation, options);
        opened.push(lease.wasWaiting ?? false);
        // Those that wait still die too: the new one must not be one of them.
        if (opened.length === 1) for (const pid of built) process.kill(pid, "SIGKILL");
        return lease;
      },
    };
    const rows: EventDraft[] = [];
    const outcome = await runJob({
      spec: { ...SPEC, code: "print(6*7)" },
      provider,
      reservation: await engine.reserve(DEFAULT_LIMITS),
      languages: engine.languages,
      append: async (drafts) => rows.push(...drafts.map(({ draft }) => eventOf(draft))),
      stop: new StopSwitch(),
      clock: systemClock,
      log: silentLog,
    });
    expect(outcome).toMatchObject({ reason: "exit", exitCode: 0 });
    // A program that takes its time is measured meanwhile.
    const told = rows.filter(({ kind }) => kind !== "usage");
    expect(told.map(({ kind }) => kind)).toEqual(["started", "stdout"]);
    expect(told[1]?.data).toBe("42\n");
    expect(opened).toEqual([true, false]);
    expect(engine.status()).toMatchObject({ sandboxes: 0, reserved: { memMb: 0, pids: 0 } });
  });

  test("a program that could not be asked for says that it never ran", async () => {
    const lease = await bench.open();
    const built = pidsOfRange(ID_RANGE);
    for (const pid of built) process.kill(pid, "SIGKILL");
    await until("all are gone", () => built.every((pid) => !pidsOfRange(ID_RANGE).includes(pid)));
    const spec = { executable: "/bin/true", arguments: [], variables: ENV };
    const error = await lease.exec(spec).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ reason: "SANDBOX_GONE", setup: { step: "request" } });
    await lease.release();
  });
});

requireHost({ sandbox: true, ids: true }).describe("a pool on a host with few ids", () => {
  const bench = useEngine({ pool: 1, idRange: { base: ID_RANGE.base, count: 4 } });

  test("gives way to whoever is to run now", async () => {
    await until("the pool is full", () => bench.engine.status().pooled === 1);
    const leases = [await bench.open()];
    await until("the pool is full", () => bench.engine.status().pooled === 1);
    leases.push(await bench.open({ mem_mb: 160 }));
    expect(bench.engine.status().sandboxes).toBe(2);
    for (const lease of leases) await lease.release();
  });
});

/** Memory limit of a group in MiB, on either version; null where it has none. */
function limitOf(directory: string): number | null {
  for (const file of ["memory.limit_in_bytes", "memory.max"]) {
    try {
      return Number(readFileSync(`${directory}/${file}`, "utf8")) / 1024 / 1024;
    } catch {
      // Another controller's directory, or the other version.
    }
  }
  return null;
}
