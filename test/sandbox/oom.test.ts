import { expect, test } from "bun:test";
import { outcomeStatus } from "../../src/core/outcome.ts";
import { requireHost } from "../helpers/host.ts";
import { IS_V2 } from "./group-values.ts";
import { ENV, finish, PYTHON, readUntil, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

const BOMB = "x = []\nwhile True: x.append(bytearray(4 << 20))\n";

host.describe("memory", () => {
  const bench = useEngine();

  test("a bomb is oom_killed, by the kernel's counter", async () => {
    const { outcome, notices } = await bench.python(BOMB, { limits: { mem_mb: 64 } });
    expect(outcome).toMatchObject({ exitCode: null, signal: "SIGKILL", reason: "oom" });
    expect(outcomeStatus(outcome)).toBe("oom_killed");
    const sampled = bench.engine.missing.includes("cgroup");
    expect(outcome.limitsHit).toEqual([
      { limit: "mem_mb", value: 64, observed: expect.any(Number), sampled },
    ]);
    expect(notices.filter(({ type }) => type === "limit")).toHaveLength(1);
    // Without a group it is stopped after the fact, and by its data segment at the latest.
    expect(outcome.usage?.memory_peak_bytes).toBeLessThanOrEqual(
      (sampled ? 64 * 2 + 256 : 64) << 20,
    );
    expect(outcome.usage?.memory_peak_bytes).toBeGreaterThan(56 << 20);
  });

  test("a bomb in a file of memory that has the name of process 1's is killed as any other", async () => {
    const bomb = `import os, sys
if len(sys.argv) == 1:
  fd = os.memfd_create("cprg-init", 0)
  os.write(fd, open(sys.executable, "rb").read())
  os.execv(f"/proc/self/fd/{fd}", [sys.executable, sys.argv[0], "again"])
assert "cprg-init" in os.readlink("/proc/self/exe")
x = [bytearray(b"x" * (1 << 20)) for _ in range(256)]
`;
    const { outcome, stderr } = await bench.python(bomb, { limits: { mem_mb: 64 } });
    expect([stderr, outcome.reason]).toEqual(["", "oom"]);
  });

  test("a bomb in a thread that has outlived the main one is killed as any other", async () => {
    const bomb = `import ctypes, os, threading, time
def grow():
  x = [bytearray(b"x" * (1 << 20)) for _ in range(256)]
  os._exit(0)
threading.Timer(0.2, grow).start()
ctypes.CDLL(None).syscall(${process.arch === "x64" ? 60 : 93}, 0)
`;
    const { outcome, stderr } = await bench.python(bomb, { limits: { mem_mb: 64 } });
    expect([stderr, outcome.reason]).toEqual(["", "oom"]);
  });

  test("a program that kills itself has failed, and so has one that exits with 137", async () => {
    const killed = await bench.python("import os; os.kill(os.getpid(), 9)");
    expect(killed.outcome).toMatchObject({ signal: "SIGKILL", reason: "signal", limitsHit: [] });
    expect(outcomeStatus(killed.outcome)).toBe("failed");
    const exited = await bench.python("import sys; sys.exit(137)");
    expect(exited.outcome).toMatchObject({ exitCode: 137, reason: "exit", limitsHit: [] });
    expect(outcomeStatus(exited.outcome)).toBe("failed");
  });

  test("a child that is killed for memory is an event, and takes the program along where groups die whole", async () => {
    const { outcome } = await bench.python(
      `import subprocess, sys\np = subprocess.run([sys.executable, "-c", ${JSON.stringify(BOMB)}])\nprint(p.returncode)\nsys.exit(3)\n`,
      { limits: { mem_mb: 64 } },
    );
    // memory.oom.group is of cgroup v2; on v1 the kernel kills the largest alone.
    const ends = IS_V2
      ? { exitCode: null, signal: "SIGKILL", reason: "oom" }
      : { exitCode: 3, reason: "exit" };
    expect(outcome).toMatchObject(ends);
    expect(outcome.limitsHit.map(({ limit }) => limit)).toEqual(["mem_mb"]);
  });

  test("memory that files take counts too, and killing for it is reported as such", async () => {
    const { outcome } = await bench.python(
      "import os\nf = open('/dev/shm/big', 'wb')\nwhile True: f.write(os.urandom(1 << 20))\n",
      { limits: { mem_mb: 48, disk_mb: 48, file_mb: 64 } },
    );
    expect(["oom", "exit"]).toContain(outcome.reason);
    const hits = outcome.limitsHit.map(({ limit }) => limit);
    expect(hits.includes("mem_mb") || hits.includes("disk_mb")).toBe(true);
    if (outcome.reason === "oom") expect(hits).toContain("mem_mb");
  });

  test("a program that is killed for memory leaves others of its sandbox running", async () => {
    const lease = await bench.open({ mem_mb: 64 });
    const neighbour = await lease.exec({
      executable: "/bin/sh",
      arguments: ["-c", "echo ready; read line; echo still"],
      variables: ENV,
      stdin: "pipe",
    });
    const reading = await readUntil(neighbour, "ready\n");
    const bomb = await lease.exec({ executable: PYTHON, arguments: ["-c", BOMB], variables: ENV });
    expect((await finish(bomb)).outcome.reason).toBe("oom");
    await neighbour.write(Buffer.from("\n"));
    expect(await reading.rest()).toBe("still\n");
    const outcome = await neighbour.outcome;
    expect(outcome).toMatchObject({ exitCode: 0, reason: "exit" });
    // Of cgroup v1 the kernel counts kills for the sandbox, not for one of its programs.
    if (IS_V2) expect(outcome.limitsHit).toEqual([]);
    await lease.release();
  });

  test("the sandbox survives the death of one program for memory", async () => {
    const lease = await bench.open({ mem_mb: 64 });
    const other = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", BOMB],
      variables: ENV,
    });
    expect((await finish(other)).outcome.reason).toBe("oom");
    expect((await lease.invoke({ executable: "echo", arguments: ["alive"] })).stdout).toBe(
      "alive\n",
    );
    await lease.release();
  });
});
