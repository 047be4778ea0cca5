import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CprgError } from "../../src/core/errors.ts";
import { parseLimits } from "../../src/core/limits.ts";
import type { EngineOptions, LocalEngine } from "../../src/sandbox/engine.ts";
import { requireHost } from "../helpers/host.ts";
import { TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, type Left, takeSnapshot } from "./snapshot.ts";
import { ID_RANGE, makeDirs, openTestEngine, warmUp } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

host.describe("a set-up that fails", () => {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  const seen: string[] = [];
  let before: Left;
  beforeAll(async () => {
    await warmUp(dirs);
    before = takeSnapshot(dirs, ID_RANGE);
  });
  afterEach(() => expectNothingLeft(before, () => takeSnapshot(dirs, ID_RANGE, seen)));
  afterAll(() => rmSync(dirs.top, { recursive: true, force: true }));

  /** The error of opening an engine or, if that works, a sandbox in it. */
  const failure = async (
    options: Partial<EngineOptions>,
    limits: Parameters<typeof parseLimits>[0] = {},
    signal?: AbortSignal,
  ): Promise<CprgError> => {
    let engine: LocalEngine | undefined;
    try {
      engine = await openTestEngine(dirs, options);
      seen.push(engine.instance);
      const reservation = await engine.reserve(parseLimits(limits));
      await engine.open(reservation, signal === undefined ? {} : { signal });
    } catch (error) {
      if (!CprgError.is(error)) throw error;
      if (engine !== undefined) {
        expect(engine.status()).toMatchObject({ sandboxes: 0, reserved: { memMb: 0, pids: 0 } });
      }
      expect(error.hint).not.toBe("");
      return error;
    } finally {
      await engine?.close();
    }
    throw new Error("it did not fail");
  };

  test("a bind whose source is missing", async () => {
    const bind = { source: "/no/such/directory", target: "/opt/given" };
    expect(await failure({ binds: [bind] })).toMatchObject({
      code: "failed_precondition",
      reason: "SETUP_FAILED",
      message: 'Cannot build a sandbox: mount "/no/such/directory": ENOENT',
      setup: { step: "mount", errnoName: "ENOENT", index: expect.any(Number) },
      hint: expect.stringContaining("CPRG_BINDS"),
    });
  });

  const own = requireHost({ ids: true });
  own.test("a bind whose source other users may not reach", async () => {
    const closed = join(dirs.top, "closed");
    mkdirSync(join(closed, "given"), { recursive: true, mode: 0o700 });
    const bind = { source: join(closed, "given"), target: "/opt/given" };
    expect(await failure({ binds: [bind] })).toMatchObject({
      setup: { step: "mount", errnoName: "EACCES" },
      hint: expect.stringContaining("reachable by every user"),
    });
    rmSync(closed, { recursive: true });
  });

  test("binds that would open or hide the sandbox", async () => {
    for (const bind of [
      { source: "/", target: "/host" },
      { source: "/proc", target: "/opt/proc" },
      { source: "/sys", target: "/opt/sys" },
      { source: "/var", target: "/" },
      { source: "/var", target: "/proc/x" },
      { source: "/var", target: "/dev" },
      { source: "/var", target: "/opt/../etc" },
      { source: "var", target: "/opt/var" },
      { source: "/var/../proc", target: "/opt/var" },
      { source: "/var", target: "/workspace" },
      { source: "/var", target: "/home" },
      { source: "/var", target: "/tmp" },
    ]) {
      expect(await failure({ binds: [bind] })).toMatchObject({
        code: "invalid_argument",
        field: "binds",
      });
    }
  });

  test("a group that is not there", async () => {
    expect(await failure({ cgroupParent: "/cprg-no-such-group" })).toMatchObject({
      code: "failed_precondition",
      reason: "CGROUP",
      hint: expect.stringContaining("CPRG_CGROUP"),
    });
  });

  requireHost({ groups: true }).test("a limit that the kernel does not take", async () => {
    // Less than one page: the group is made, the value is not what was asked for.
    const engine = await openTestEngine(dirs);
    seen.push(engine.instance);
    const reservation = await engine.reserve({ ...parseLimits(undefined), mem_mb: 0.001 });
    const error = await engine.open(reservation).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ reason: "CGROUP" });
    await engine.close();
  });

  test("too little memory to build the root", async () => {
    const error = await failure({}, { mem_mb: 1, disk_mb: 1 }).catch((thrown: unknown) => thrown);
    // Where one MiB is enough for process 1 on this kernel, nothing fails.
    if (CprgError.is(error)) expect(error.hint).toBeDefined();
    else expect(String(error)).toContain("did not fail");
  });

  own.test("no ids left", async () => {
    expect(await failure({ idRange: { base: 1000, count: 1 } })).toMatchObject({
      code: "invalid_argument",
      field: "idRange",
    });
    const engine = await openTestEngine(dirs, { idRange: { base: ID_RANGE.base, count: 2 } });
    seen.push(engine.instance);
    const lease = await engine.open(await engine.reserve(parseLimits(undefined)));
    const error = await engine
      .open(await engine.reserve(parseLimits(undefined)))
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "resource_exhausted", reason: "NO_IDS" });
    await lease.release();
    const next = await engine.open(await engine.reserve(parseLimits(undefined)));
    await next.release();
    await engine.close();
  });

  test("a run directory that cannot be one", async () => {
    const path = join(dirs.top, "file");
    writeFileSync(path, "");
    expect(await failure({ runDir: join(path, "run") })).toMatchObject({
      reason: "RUN_DIR",
      hint: expect.stringContaining("CPRG_RUN_DIR"),
    });
    rmSync(path);
  });

  own.test("an id directory that stops being one", async () => {
    const engine = await openTestEngine(dirs);
    seen.push(engine.instance);
    rmSync(join(dirs.run, "ids"), { recursive: true });
    const error = await engine
      .open(await engine.reserve(parseLimits(undefined)))
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ reason: "ID_DIR", hint: expect.stringContaining("writable") });
    mkdirSync(join(dirs.run, "ids"));
    await engine.close();
  });

  test("a link in place of the lock", async () => {
    rmSync(join(dirs.run, "gate"), { force: true });
    symlinkSync("/etc/passwd", join(dirs.run, "gate"));
    const error = await openTestEngine(dirs).catch((thrown: unknown) => thrown);
    expect(String(error)).toContain("ELOOP");
    rmSync(join(dirs.run, "gate"));
    writeFileSync(join(dirs.run, "gate"), "");
  });

  test("a cancel before and while it opens", async () => {
    expect(await failure({}, {}, AbortSignal.abort())).toMatchObject({ code: "canceled" });
    const controller = new AbortController();
    queueMicrotask(() => controller.abort());
    expect(await failure({}, {}, controller.signal)).toMatchObject({ code: "canceled" });
  });

  test("few descriptors left: each operation works, or says what to raise", async () => {
    const script = join(import.meta.dir, "few-descriptors.ts");
    const { run, data } = dirs;
    const child = Bun.spawn(
      [
        ...["sh", "-c", 'ulimit -n 64; exec "$0" "$@"', process.execPath],
        ...[script, run, data, `${ID_RANGE.base}`],
      ],
      { env: { PATH: "/usr/bin:/bin" }, stdout: "pipe", stderr: "pipe" },
    );
    const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    expect({ err, code: await child.exited }).toEqual({ err: "", code: 0 });
    const { instance, left, said } = JSON.parse(out) as {
      readonly instance: string;
      readonly left: number;
      readonly said: Readonly<Record<string, readonly string[]>>;
    };
    seen.push(instance);
    expect(left).toBe(0);
    for (const [operation, answers] of Object.entries(said)) {
      const wrong = answers.filter((text) => text !== "ok" && !text.includes("ulimit -n"));
      expect({ operation, wrong }).toEqual({ operation, wrong: [] });
      // Too few at first, and enough at last: otherwise nothing was tried.
      expect({ operation, first: answers[0], last: answers.at(-1) }).toEqual({
        operation,
        first: expect.stringContaining("EMFILE"),
        last: "ok",
      });
    }
  });
});
