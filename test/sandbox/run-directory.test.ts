import { afterAll, afterEach, beforeEach, expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, chownSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newId } from "../../src/core/ids.ts";
import { parseLimits } from "../../src/core/limits.ts";
import { requireHost } from "../helpers/host.ts";
import { TEST_TIMEOUT_MS } from "./pace.ts";
import { makeDirs, openTestEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const SOMEBODY = 65_534;

host.describe("a run directory with the work of others in it", () => {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  afterAll(() => rmSync(dirs.top, { recursive: true, force: true }));

  /** A process that nobody may kill, and a directory that names it as that of a dead instance. */
  let bystander: Bun.Subprocess;
  const plant = (): string => {
    const id = newId();
    const group = join(dirs.top, id);
    mkdirSync(group);
    writeFileSync(join(group, "cgroup.procs"), String(bystander.pid));
    const instance = join(dirs.run, "instances", id);
    mkdirSync(instance, { recursive: true, mode: 0o700 });
    writeFileSync(join(instance, "groups"), group);
    return instance;
  };
  beforeEach(() => {
    rmSync(dirs.run, { recursive: true, force: true });
    bystander = Bun.spawn(["sleep", "1000"], { stdio: ["ignore", "ignore", "ignore"] });
  });
  afterEach(async () => {
    bystander.kill("SIGKILL");
    await bystander.exited;
  });
  const start = () =>
    openTestEngine(dirs).then(
      async (engine) => {
        await engine.close();
        return null;
      },
      (error: unknown) => error,
    );

  const own = requireHost({ ids: true });
  own.test(
    "is refused when it is somebody else's or open to others, and nobody is killed",
    async () => {
      const instance = plant();
      const spoils: readonly (readonly [string, () => void, () => void])[] = [
        ["run", () => chownSync(dirs.run, SOMEBODY, 0), () => chownSync(dirs.run, 0, 0)],
        ["run", () => chmodSync(dirs.run, 0o770), () => chmodSync(dirs.run, 0o700)],
        ["run", () => chmodSync(dirs.run, 0o1777), () => chmodSync(dirs.run, 0o700)],
        ["instance", () => chownSync(instance, SOMEBODY, 0), () => chownSync(instance, 0, 0)],
      ];
      for (const [what, spoil, mend] of spoils) {
        spoil();
        expect([what, await start()]).toMatchObject([
          what,
          { reason: "RUN_DIR", hint: expect.stringContaining("chmod 700") },
        ]);
        mend();
      }
      expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
      expect(existsSync(instance)).toBe(true);
    },
  );

  test("a directory that is no control group kills nobody", async () => {
    const instance = plant();
    expect(await start()).toBeNull();
    expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
    expect(existsSync(instance)).toBe(false);
  });

  own.test("the directory of ids is as private", async () => {
    mkdirSync(join(dirs.run, "ids"), { recursive: true, mode: 0o700 });
    chmodSync(join(dirs.run, "ids"), 0o777);
    expect(await start()).toMatchObject({ reason: "ID_DIR" });
  });

  own.test(
    "two servers whose run directory is removed beneath the first share no ids",
    async () => {
      const idDirectory = join(dirs.top, "host-ids");
      const range = { idRange: { base: 1_699_999_000, count: 2 }, idDirectory };
      const first = await openTestEngine(dirs, range);
      const held = await first.open(await first.reserve(parseLimits(undefined)));
      rmSync(dirs.run, { recursive: true });
      const second = await openTestEngine(dirs, range);
      try {
        const error = await second
          .open(await second.reserve(parseLimits(undefined)))
          .catch((thrown: unknown) => thrown);
        expect(error).toMatchObject({ reason: "NO_IDS" });
      } finally {
        await held.release();
        await first.close();
        await second.close();
      }
    },
  );
});
