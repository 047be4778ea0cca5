import { describe, expect, test } from "bun:test";
import {
  childrenOf,
  cpuUsOf,
  descendantsOf,
  imageOf,
  innerPid,
  isAlive,
  proportionalOf,
  residentOf,
  tasksOf,
  threadsOf,
} from "../../../src/sandbox/process-tree.ts";
import { TreeWatch } from "../../../src/sandbox/tree-watch.ts";

const MIB = 1024 * 1024;

describe("TreeWatch", () => {
  /** Real processes: the watch reads /proc by itself. */
  const withProcesses = async (
    sizesMib: readonly number[],
    work: (pids: readonly number[]) => void,
  ): Promise<void> => {
    const started = sizesMib.map((size) =>
      Bun.spawn(
        [
          "/usr/bin/python3",
          "-c",
          `import sys; x = b'x' * (${size} << 20); print(flush=True); sys.stdin.read()`,
        ],
        { stdin: "pipe", stdout: "pipe" },
      ),
    );
    try {
      for (const child of started) await child.stdout.getReader().read();
      work(started.map(({ pid }) => pid));
    } finally {
      for (const child of started) child.kill("SIGKILL");
      await Promise.all(started.map(({ exited }) => exited));
    }
  };
  const watchOver = (
    pids: readonly number[],
    options: { readonly memoryMib: number; readonly tasks?: number; readonly fileMib?: number },
  ) => {
    const killed: number[] = [];
    const watch = new TreeWatch({
      memoryBytes: options.memoryMib * MIB,
      tasks: options.tasks ?? 100,
      processes: () => pids.filter((pid) => !killed.includes(pid)),
      fileBytes: () => (options.fileMib ?? 0) * MIB,
      kill: (pid) => killed.push(pid),
    });
    return { watch, killed };
  };

  test("adds up what processes have, and lets them be beneath the limit", async () => {
    await withProcesses([20, 30], (pids) => {
      const { watch, killed } = watchOver(pids, { memoryMib: 200, fileMib: 10 });
      watch.look();
      expect(killed).toEqual([]);
      expect(watch.memoryBytes).toBeGreaterThan(60 * MIB);
      expect(watch.memoryBytes).toBeLessThan(110 * MIB);
      expect([watch.tasks, watch.tasksPeak, watch.looksFull]).toEqual([2, 2, 0]);
    });
  });

  test("kills the largest, and no more than it must", async () => {
    await withProcesses([10, 60, 20], (pids) => {
      const { watch, killed } = watchOver(pids, { memoryMib: 70 });
      watch.look();
      expect(killed).toEqual([pids[1] as number]);
      expect(watch.kills).toBe(1);
      expect(watch.memoryPeakBytes).toBeGreaterThan(70 * MIB);
      watch.look();
      expect(watch.kills).toBe(1);
    });
  });

  test("counts files, and says when no task more was allowed", async () => {
    await withProcesses([10], (pids) => {
      const { watch, killed } = watchOver(pids, { memoryMib: 40, fileMib: 60, tasks: 1 });
      watch.look();
      expect(killed).toEqual([...pids]);
      expect(watch.looksFull).toBe(1);
      const { memoryBytes, tasks } = watch;
      watch.look();
      expect([watch.memoryBytes, watch.tasks]).toEqual([memoryBytes, tasks]);
    });
  });

  test("spares what has memory twice for a moment", async () => {
    await withProcesses([20, 20], ([parent = 0, child = 0]) => {
      const killed: number[] = [];
      // The quick look, the first exact one, and the second, at which the child has its own.
      const looks = [[parent, child], [parent, child], [parent]];
      const watch = new TreeWatch({
        memoryBytes: 38 * MIB,
        tasks: 100,
        processes: () => looks.shift() ?? [],
        fileBytes: () => 0,
        kill: (pid) => killed.push(pid),
      });
      watch.look();
      expect([killed, watch.kills, looks]).toEqual([[], 0, []]);
      expect(watch.memoryPeakBytes).toBeLessThan(38 * MIB);
    });
  });

  test("looks often at what shares pages and has little room", async () => {
    const code = `import mmap, os, sys, time
x = mmap.mmap(-1, 30 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 30 << 20, 4096): x[at] = 1
if os.fork() == 0: time.sleep(1000)
print(flush=True)
sys.stdin.readline()
y = b"y" * (30 << 20)
print(flush=True)
sys.stdin.read()`;
    const child = Bun.spawn(["/usr/bin/python3", "-c", code], { stdin: "pipe", stdout: "pipe" });
    const output = child.stdout.getReader();
    try {
      await output.read();
      const pids = [child.pid, ...descendantsOf(child.pid)];
      const { watch, killed } = watchOver(pids, { memoryMib: 58 });
      watch.look();
      expect([killed, watch.memoryBytes > 30 * MIB]).toEqual([[], true]);
      child.stdin.write("\n");
      child.stdin.flush();
      await output.read();
      for (let looks = 0; looks < 9; looks += 1) watch.look();
      expect(killed).toEqual([child.pid]);
    } finally {
      for (const pid of descendantsOf(child.pid)) process.kill(pid, "SIGKILL");
      child.kill("SIGKILL");
      await child.exited;
    }
  }, 30_000);

  test("counts pages that several share once", async () => {
    const code =
      "import os, sys, time\nx = b'x' * (40 << 20)\nfor _ in range(4):\n  if os.fork() == 0: time.sleep(1000)\nprint(flush=True)\nsys.stdin.read()";
    const child = Bun.spawn(["/usr/bin/python3", "-c", code], {
      stdin: "pipe",
      stdout: "pipe",
    });
    try {
      await child.stdout.getReader().read();
      const pids = [child.pid, ...descendantsOf(child.pid)];
      expect(pids).toHaveLength(5);
      const { watch, killed } = watchOver(pids, { memoryMib: 120 });
      watch.look();
      expect(killed).toEqual([]);
      expect(watch.memoryBytes).toBeGreaterThan(40 * MIB);
    } finally {
      for (const pid of descendantsOf(child.pid)) process.kill(pid, "SIGKILL");
      child.kill("SIGKILL");
      await child.exited;
    }
  });
});

describe("process-tree reads", () => {
  test("children, their ends and what they are", async () => {
    const child = Bun.spawn(["/bin/sh", "-c", "sleep 1000 & echo; wait"], { stdout: "pipe" });
    await child.stdout.getReader().read();
    expect(childrenOf(process.pid)).toContain(child.pid);
    const [sleeper = 0] = childrenOf(child.pid);
    expect(descendantsOf(child.pid)).toEqual([sleeper]);
    expect(innerPid(child.pid)).toBeGreaterThan(0);
    expect(imageOf(child.pid)).toMatch(/^\d+:\d+$/);
    expect([isAlive(child.pid), threadsOf(child.pid)]).toEqual([true, 1]);
    process.kill(sleeper, "SIGKILL");
    child.kill("SIGKILL");
    await child.exited;
    expect([isAlive(child.pid), childrenOf(child.pid), innerPid(child.pid)]).toEqual([
      false,
      [],
      null,
    ]);
    expect([imageOf(child.pid), threadsOf(child.pid), cpuUsOf(child.pid)]).toEqual(["", 0, 0]);
    expect(residentOf(child.pid)).toEqual({ anonymousBytes: 0, sharedBytes: 0, tasks: 0 });
  });

  test("this process", () => {
    expect(cpuUsOf(process.pid)).toBeGreaterThan(0);
    expect(residentOf(process.pid).anonymousBytes).toBeGreaterThan(MIB);
    expect(proportionalOf(process.pid).anonymousBytes).toBeGreaterThan(MIB);
    expect(tasksOf(process.getuid?.() ?? -1)).toBeGreaterThanOrEqual(threadsOf(process.pid));
  });
});
