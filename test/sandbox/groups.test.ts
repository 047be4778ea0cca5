// The engine on the kinds of groups that this host's default is not.

import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Limits, parseLimits } from "../../src/core/limits.ts";
import { silentLog } from "../../src/core/log.ts";
import { findCgroups } from "../../src/sandbox/cgroup-host.ts";
import { openV1Tree } from "../../src/sandbox/cgroup-v1.ts";
import { IdPool } from "../../src/sandbox/ids.ts";
import { openInstance } from "../../src/sandbox/instance.ts";
import { MAP } from "../../src/sandbox/layout.ts";
import { NamespaceEngine } from "../../src/sandbox/namespace-engine.ts";
import { Native } from "../../src/sandbox/native.ts";
import { PlanSource } from "../../src/sandbox/plan-source.ts";
import { openFilters } from "../../src/sandbox/seccomp/filters.ts";
import { requireHost } from "../helpers/host.ts";
import { hierarchies, hierarchyOf, IS_V2, sandboxValues } from "./group-values.ts";
import { paced, TEST_TIMEOUT_MS } from "./pace.ts";
import { expectNothingLeft, groups, pidsOfRange, takeSnapshot } from "./snapshot.ts";
import {
  ENV,
  finish,
  fixture,
  ID_RANGE,
  makeDirs,
  openTestEngine,
  PYTHON,
  readUntil,
  type TestDirs,
  warmUp,
} from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const v1 = requireHost({ sandbox: true, groups: true, cgroup: "v1" });
const named = requireHost({ sandbox: true, groups: true });

/** Each loading of the library keeps a process 1 in memory, so it is loaded once. */
let loading: Promise<Native> | undefined;
function ownNative({ data }: TestDirs): Promise<Native> {
  loading ??= Native.load({ dataDir: data });
  return loading;
}

/** An engine on v1 alone, as on a host that mounts no cgroup2. */
async function openPureV1(dirs: TestDirs): Promise<NamespaceEngine> {
  const found = findCgroups();
  if (found.version === "v2") throw new Error("the controllers are on v2");
  const native = await ownNative(dirs);
  const instance = await openInstance(native, dirs.run, () => Promise.resolve());
  const cpuacct = found.cpuacct ?? "/sys/fs/cgroup/cpuacct";
  const capacity = { memMb: 2048, pids: 1000 };
  return new NamespaceEngine({
    mode: "ns",
    host: {
      native,
      ids: new IdPool(native, { directory: join(dirs.run, "ids"), range: ID_RANGE }),
      groups: openV1Tree(
        native,
        { ...found, version: "v1", unified: null, cpuacct },
        {
          instance: instance.id,
          capacity,
          onPlaces: (directories) => instance.recordGroups(directories),
        },
      ),
      idMap: MAP.parent,
      plans: new PlanSource({ idMap: MAP.parent, binds: [], runtime: null }),
    },
    instance,
    capacity,
    layers: { cgroup: "v1" },
    interpreters: {},
    hasRuntime: false,
    filters: openFilters(),
    pool: 0,
    log: silentLog,
  });
}

const openWithout = (dirs: TestDirs) =>
  openTestEngine(dirs, { cgroupParent: "/cprg-no-such-group", allowMissing: ["cgroup"] });

/** Makes a group in every hierarchy, for an operator's CPRG_CGROUP, which is `parent`. */
function makeNamed(name: string): { readonly places: string[]; readonly parent: string } {
  const found = findCgroups();
  const isV2 = found.version === "v2";
  const places = (isV2 ? [found.base] : hierarchies()).map((above) => join(above, name));
  for (const place of places) mkdirSync(place);
  return { places, parent: isV2 ? join(found.base, name) : `/${name}` };
}

host.describe("groups of other kinds", () => {
  setDefaultTimeout(TEST_TIMEOUT_MS);

  const withEngine = async (
    open: (dirs: TestDirs) => Promise<NamespaceEngine | Awaited<ReturnType<typeof openWithout>>>,
    work: (
      python: (code: string, limits?: Partial<Limits>) => ReturnType<typeof finish>,
      instance: string,
    ) => Promise<void>,
  ): Promise<void> => {
    const dirs = makeDirs();
    await warmUp(dirs);
    await ownNative(dirs);
    const before = takeSnapshot(dirs, ID_RANGE);
    const engine = await open(dirs);
    try {
      await work(async (code, limits = {}) => {
        const lease = await engine.open(await engine.reserve(parseLimits(limits)));
        try {
          const exec = await lease.exec({
            executable: PYTHON,
            arguments: ["-c", code, "exit"],
            variables: ENV,
          });
          const ran = await finish(exec);
          expect(pidsOfRange(ID_RANGE)).toHaveLength(1);
          return ran;
        } finally {
          await lease.release();
        }
      }, engine.instance);
    } finally {
      await engine.close();
    }
    await expectNothingLeft(before, () => takeSnapshot(dirs, ID_RANGE, [engine.instance]));
    rmSync(dirs.top, { recursive: true });
  };

  v1.test("v1 alone: everything dies, memory and CPU time are counted, limits hold", async () => {
    await withEngine(openPureV1, async (python, instance) => {
      const daemon = await python(fixture("daemon-forks.py"));
      expect(daemon.outcome).toMatchObject({ exitCode: 5, reason: "exit" });
      expect(daemon.outcome.killed).toBeGreaterThan(0);

      const oom = await python("x = []\nwhile True: x.append(bytearray(1 << 22))", { mem_mb: 64 });
      expect(oom.outcome.reason).toBe("oom");

      const spin = await python("import os\nos.fork()\nwhile True: pass", {
        cpu_seconds: 0.3,
        cpu_cores: 2,
      });
      expect(spin.outcome.reason).toBe("cpu_limit");
      expect(spin.outcome.usage?.cpu_ms).toBeGreaterThanOrEqual(300);

      const forks = await python(
        "import os, sys\ntry:\n  while True:\n    if os.fork() == 0:\n      import time; time.sleep(100)\nexcept OSError: sys.exit(4)",
        { pids: 12 },
      );
      expect(forks.outcome).toMatchObject({ exitCode: 4, killed: 11 });
      expect(forks.outcome.limitsHit.map(({ limit }) => limit)).toEqual(["pids"]);
      expect(groups([instance]).filter((path) => path.includes("/unified/"))).toEqual([]);
    });
  });

  test("none, where that is allowed: said, and everything dies all the same", async () => {
    await withEngine(openWithout, async (python, instance) => {
      const daemon = await python(fixture("daemon-forks.py"));
      expect(daemon.outcome).toMatchObject({ exitCode: 5, reason: "exit" });
      const spin = await python("while True: pass", { wall_seconds: paced(0.5) });
      expect(spin.outcome.reason).toBe("wall_limit");
      const cpu = await python("while True: pass", {
        cpu_seconds: paced(1),
        wall_seconds: paced(60),
      });
      expect(cpu.outcome.reason).toBe("cpu_limit");
      // Without a group, a watch ends the largest program.
      const memory = await python("x = bytearray(200 << 20)\nwhile True: pass", { mem_mb: 64 });
      expect(memory.outcome).toMatchObject({ reason: "oom", signal: "SIGKILL" });
      expect(groups([instance])).toEqual([]);
    });
  });

  test("none: refused unless it is allowed, and reported where it is", async () => {
    const dirs = makeDirs();
    const refused = await openTestEngine(dirs, { cgroupParent: "/cprg-no-such-group" }).catch(
      (error: unknown) => error,
    );
    expect(refused).toMatchObject({ code: "failed_precondition", reason: "CGROUP" });
    const engine = await openWithout(dirs);
    expect(engine.layers["cgroup"]).toBe(false);
    expect(engine.missing).toContain("cgroup");
    await engine.close();
    rmSync(dirs.top, { recursive: true });
  });

  named.test("a named group is where ours are made", async () => {
    const name = `cprg-test-${process.pid}`;
    const { places, parent } = makeNamed(name);
    const dirs = makeDirs();
    try {
      const engine = await openTestEngine(dirs, { cgroupParent: parent });
      const lease = await engine.open(await engine.reserve(parseLimits(undefined)));
      const exec = await lease.exec({
        executable: "cat",
        arguments: [],
        variables: ENV,
        stdin: "pipe",
      });
      const own = groups([engine.instance]).filter((path) => /\/s\d+$/.test(path));
      expect(own.map(dirname).sort()).toEqual(
        places.map((place) => `${place}/cprg/${engine.instance}`).sort(),
      );
      await exec.closeInput();
      await exec.outcome;
      await lease.release();
      await engine.close();
      const refused = [
        { binds: [{ source: "/", target: "/host" }] },
        // A user's sandboxes take no ids of a range.
        ...(process.getuid?.() === 0 ? [{ idRange: { base: 1000, count: 1 } }] : []),
      ];
      for (const options of refused) {
        const opening = openTestEngine(dirs, { cgroupParent: parent, ...options });
        await expect(opening).rejects.toMatchObject({ code: "invalid_argument" });
      }
      // Nothing is left in it of either kind: see the removal below.
    } finally {
      for (const place of places) rmdirSync(place);
      rmSync(dirs.top, { recursive: true });
    }
  });

  named.test(
    "a bound of the group around ours on CPU time holds, and more is not asked of the kernel",
    async () => {
      const name = `cprg-test-${process.pid}-cpu`;
      const { places, parent } = makeNamed(name);
      if (IS_V2) writeFileSync(join(parent, "cpu.max"), "30000 100000");
      else writeFileSync(join(hierarchyOf("cpu"), name, "cpu.cfs_quota_us"), "30000");
      const dirs = makeDirs();
      try {
        const engine = await openTestEngine(dirs, { cgroupParent: parent });
        const lease = await engine.open(await engine.reserve(parseLimits({ cpu_cores: 2 })));
        // v1 refuses a quota above that of the group around; v2 takes it, and the smaller one holds.
        const quotaUs = IS_V2 ? 200_000 : 30_000;
        expect(sandboxValues(engine.instance).cpuMax).toEqual([quotaUs, 100_000]);
        expect((await lease.invoke({ executable: "true" })).status).toBe(0);
        await lease.release();
        await engine.close();
      } finally {
        for (const place of places) rmdirSync(place);
        rmSync(dirs.top, { recursive: true });
      }
    },
  );

  named.test("the place for groups stays where it is, however often it is looked for", () => {
    expect(findCgroups()).toEqual(findCgroups());
  });

  v1.test("v1 alone: killing one program spares its neighbours", async () => {
    const dirs = makeDirs();
    const engine = await openPureV1(dirs);
    const lease = await engine.open(await engine.reserve(parseLimits(undefined)));
    const start = () =>
      lease.exec({
        executable: "sh",
        arguments: ["-c", "echo ready; read x; echo $x"],
        variables: ENV,
        stdin: "pipe",
      });
    const [left, right] = [await start(), await start()];
    const reading = await readUntil(right, "ready\n");
    left.kill("user");
    expect((await left.outcome).reason).toBe("user");
    await right.write(Buffer.from("still\n"));
    expect(await reading.rest()).toBe("still\n");
    expect(await right.outcome).toMatchObject({ exitCode: 0, reason: "exit" });
    await lease.release();
    await engine.close();
    rmSync(dirs.top, { recursive: true });
  });
});
