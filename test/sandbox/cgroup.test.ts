import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { groups, pidsOfRange } from "./snapshot.ts";
import { ENV, ID_RANGE, until, useEngine } from "./test-engine.ts";

const host = requireHost({ root: true, userns: true, cgroup: true });

host.describe("the group of a sandbox, read on the host while a program runs", () => {
  const bench = useEngine({ capacity: { memMb: 4096, pids: 2000 } });

  const read = (directory: string | undefined, file: string): string => {
    if (directory === undefined) throw new Error(`no group for ${file}`);
    return readFileSync(join(directory, file), "utf8").trim();
  };
  const groupIn = (kind: string, tail: RegExp): string | undefined =>
    groups([bench.engine.instance]).find(
      (path) => path.includes(`/${kind}/`) && tail.test(path.split(bench.engine.instance)[1] ?? ""),
    );

  test("holds the program, and its values equal the request", async () => {
    const lease = await bench.open({ mem_mb: 123, pids: 17, cpu_cores: 0.5 });
    const exec = await lease.exec({ executable: "sleep", arguments: ["1000"], variables: ENV });
    await until("it runs", () => pidsOfRange(ID_RANGE).length === 2);
    const [program] = pidsOfRange(ID_RANGE).filter(
      (pid) => read(`/proc/${pid}`, "comm") === "sleep",
    );
    const memory = groupIn("memory", /^\/s\d+$/);
    expect(read(memory, "memory.limit_in_bytes")).toBe(String(123 * 1024 * 1024));
    const cpu = groupIn("cpu", /^\/s\d+$/);
    expect(read(cpu, "cpu.cfs_quota_us")).toBe("50000");
    expect(read(cpu, "cpu.cfs_period_us")).toBe("100000");
    const pids = groupIn("pids", /^\/s\d+$/);
    expect(read(pids, "pids.max")).toBe("17");
    for (const group of [memory, cpu, pids]) {
      expect(read(group, "cgroup.procs").split("\n")).toContain(String(program));
    }
    const own = groupIn("unified", /^\/s\d+\/exec-\d+$/);
    expect(read(own, "cgroup.procs")).toBe(String(program));
    exec.kill("user");
    expect((await exec.outcome).reason).toBe("user");
    await lease.release();
    expect(groupIn("memory", /^\/s\d+$/)).toBeUndefined();
  });

  test("all sandboxes together stay beneath one cap", () => {
    const memory = groupIn("memory", /^$/);
    expect(read(memory, "memory.limit_in_bytes")).toBe(String(4096 * 1024 * 1024));
    expect(read(groupIn("pids", /^$/), "pids.max")).toBe("2000");
  });

  test("a share of a core is a share of a core", async () => {
    const ran = await bench.python(
      "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\n",
      { limits: { cpu_cores: 0.25 } },
    );
    expect(ran.outcome.reason).toBe("exit");
    // Half of what an unbounded loop would use leaves room for rounding, and tells the two apart.
    expect(ran.outcome.usage?.cpu_ms).toBeLessThan(600);
    expect(ran.outcome.usage?.cpu_ms).toBeGreaterThan(50);
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
