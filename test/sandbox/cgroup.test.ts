import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import {
  execGroups,
  instanceValues,
  isLimited,
  sandboxGroups,
  sandboxValues,
} from "./group-values.ts";
import { paced } from "./pace.ts";
import { pidsOfRange } from "./snapshot.ts";
import { ENV, ID_RANGE, until, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true, groups: true });

host.describe("the group of a sandbox, read on the host while a program runs", () => {
  const bench = useEngine({ capacity: { memMb: 4096, pids: 2000 } });

  const instance = (): string => bench.engine.instance;
  const commandOf = (pid: number): string => readFileSync(`/proc/${pid}/comm`, "utf8").trim();

  test("holds the program, and its values equal the request", async () => {
    const lease = await bench.open({ mem_mb: 123, pids: 17, cpu_cores: 0.5 });
    const exec = await lease.exec({ executable: "sleep", arguments: ["1000"], variables: ENV });
    await until("it runs", () => pidsOfRange(ID_RANGE).some((pid) => commandOf(pid) === "sleep"));
    const [program = 0] = pidsOfRange(ID_RANGE).filter((pid) => commandOf(pid) === "sleep");
    expect(sandboxValues(instance())).toEqual({
      memoryMaxBytes: 123 * 1024 * 1024,
      cpuMax: [50_000, 100_000],
      pidsMax: 17,
    });
    expect(isLimited(instance(), program)).toBe(true);
    const [own = ""] = execGroups(instance());
    expect(readFileSync(join(own, "cgroup.procs"), "utf8")).toBe(`${program}\n`);
    exec.kill("user");
    expect((await exec.outcome).reason).toBe("user");
    await lease.release();
    expect(sandboxGroups(instance())).toEqual([]);
  });

  test("all sandboxes together stay beneath one cap", () => {
    expect(instanceValues(instance())).toEqual({
      memoryMaxBytes: 4096 * 1024 * 1024,
      pidsMax: 2000,
    });
  });

  test("a share of a core is a share of a core", async () => {
    const ran = await bench.python(
      `import time\nend = time.monotonic() + ${paced(1)}\nwhile time.monotonic() < end: pass\n`,
      { limits: { cpu_cores: 0.25 } },
    );
    expect(ran.outcome.reason).toBe("exit");
    // Half of what an unbounded loop would use leaves room for rounding, and tells the two apart.
    expect(ran.outcome.usage?.cpu_ms).toBeLessThan(ran.outcome.durationMs / 2);
    expect(ran.outcome.usage?.cpu_ms).toBeGreaterThan(paced(50));
  });

  test("CPU time of children that nobody waited for is counted", async () => {
    const burn =
      "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n";
    const ran = await bench.python(
      `import subprocess, sys, time\np = [subprocess.Popen([sys.executable, "-c", ${JSON.stringify(burn)}]) for _ in range(2)]\n[each.wait() for each in p]\n`,
      { limits: { cpu_cores: 2 } },
    );
    expect(ran.outcome.usage?.cpu_ms).toBeGreaterThan(600);
  });
});
