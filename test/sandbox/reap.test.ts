import { afterAll, expect, setDefaultTimeout } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { parseLimits } from "../../src/core/limits.ts";
import { listInstances } from "../../src/sandbox/instance.ts";
import { requireHost } from "../helpers/host.ts";
import { execGroups } from "./group-values.ts";
import { TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, groups, pidsOfRange, takeSnapshot } from "./snapshot.ts";
import { ID_RANGE, makeDirs, openTestEngine, until, warmUp } from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const PROGRAM = join(import.meta.dir, "../fixtures/engine-that-dies.ts");

host.describe("what a dead engine leaves", () => {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  afterAll(() => rmSync(dirs.top, { recursive: true, force: true }));

  /** Starts an engine in a process of its own, and returns once its program runs. */
  const startOther = async () => {
    const child = Bun.spawn(
      [process.execPath, PROGRAM, dirs.run, dirs.data, String(ID_RANGE.base)],
      { stdout: "pipe", stderr: "inherit", env: {} },
    );
    const reader = child.stdout.getReader();
    const { value } = await reader.read();
    return {
      child,
      instance: Buffer.from(value ?? [])
        .toString()
        .trim(),
    };
  };

  const grouped = requireHost({ groups: true });
  grouped.test("is removed by the next one; what a living engine has is left alone", async () => {
    await warmUp(dirs);
    const before = takeSnapshot(dirs, ID_RANGE);
    const { child, instance } = await startOther();
    expect(pidsOfRange(ID_RANGE).length).toBeGreaterThanOrEqual(4);
    expect(execGroups(instance)).toHaveLength(1);

    // While it lives, another start touches nothing of it.
    const neighbour = await openTestEngine(dirs);
    expect(listInstances(dirs.run)).toContain(instance);
    expect(execGroups(instance)).toHaveLength(1);

    child.kill("SIGKILL");
    await child.exited;
    // The sandbox ends with its server; its groups, ids and directory wait for the next start.
    await until("the sandbox has ended", () => pidsOfRange(ID_RANGE).length === 0);
    expect(execGroups(instance)).toHaveLength(1);
    const lease = await neighbour.open(await neighbour.reserve(parseLimits(undefined)));
    const next = await openTestEngine(dirs);
    expect(groups([instance])).toEqual([]);
    expect(listInstances(dirs.run).sort()).toEqual([neighbour.instance, next.instance].sort());
    expect((await lease.invoke({ executable: "true" })).status).toBe(0);
    await lease.release();
    await next.close();
    await neighbour.close();
    const instances = [instance, neighbour.instance, next.instance];
    await expectNothingLeft(before, () => takeSnapshot(dirs, ID_RANGE, instances));
  });

  grouped.test("is removed with processes that still run in its groups", async () => {
    const { child, instance } = await startOther();
    // A process of ours stands in for a program that its server could not take along.
    const [group] = execGroups(instance);
    const left = Bun.spawn(["sleep", "1000"], { stdio: ["ignore", "ignore", "ignore"] });
    if (group === undefined) throw new Error("no group of an exec");
    await Bun.write(join(group, "cgroup.procs"), String(left.pid));
    child.kill("SIGKILL");
    await child.exited;
    const next = await openTestEngine(dirs);
    expect(await left.exited).toBe(137);
    expect(groups([instance])).toEqual([]);
    await next.close();
  });
});
