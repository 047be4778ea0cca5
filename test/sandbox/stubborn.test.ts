// Programs that hold up what the server waits for: the end of a lease, a start, a transfer.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { ExecLease } from "../../src/provider/contract.ts";
import { requireHost } from "../helpers/host.ts";
import { pidsOfRange } from "./snapshot.ts";
import { ENV, finish, ID_RANGE, PYTHON, readUntil, until, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

/** Its main thread ends, another lives for ten minutes. */
const DEAD_LEADER =
  "import ctypes, threading, time\nthreading.Thread(target=lambda: [time.sleep(.05) for _ in range(12000)]).start()\nprint('ready', flush=True)\nctypes.CDLL(None).pthread_exit(0)\n";
/** Stops every other program of the sandbox, all the time. */
const STOPPER =
  "import os, signal\nprint('ready', flush=True)\nwhile True:\n  for pid in range(2, 200):\n    if pid == os.getpid(): continue\n    try: os.kill(pid, signal.SIGSTOP)\n    except OSError: pass\n";
/** Stops whatever comes next, at once: process numbers are given in order. */
const AMBUSH =
  "import os, signal\nprint('ready', flush=True)\nlast = os.getpid()\nwhile True:\n  for pid in range(last + 1, last + 6):\n    try: os.kill(pid, signal.SIGSTOP); last = pid\n    except OSError: pass\n";

host.describe("a stubborn program", () => {
  const bench = useEngine();
  const rejections: unknown[] = [];
  const note = (error: unknown): void => void rejections.push(error);
  beforeAll(() => void process.on("unhandledRejection", note));
  afterAll(() => void process.off("unhandledRejection", note));

  const start = async (lease: ExecLease, code: string) => {
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", code],
      variables: ENV,
    });
    await readUntil(exec, "ready");
    return exec;
  };

  test("whose main thread has ended does not hold up the end of its lease", async () => {
    const lease = await bench.open();
    const exec = await start(lease, DEAD_LEADER);
    await lease.release();
    expect(pidsOfRange(ID_RANGE)).toEqual([]);
    expect(await exec.outcome).toMatchObject({ reason: "shutdown", signal: "SIGKILL" });
  });

  test("which leaves such a process behind has ended when that one is dead", async () => {
    const lease = await bench.open();
    const code = `import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', ${JSON.stringify(DEAD_LEADER)}], stdout=subprocess.PIPE)\nchild.stdout.readline()\nprint('ready', flush=True)\n`;
    const exec = await start(lease, code);
    expect(await exec.outcome).toMatchObject({ reason: "exit", exitCode: 0 });
    expect(pidsOfRange(ID_RANGE)).toHaveLength(1);
    await lease.release();
  });

  test("that stops others cannot keep a transfer, a start or a command from its deadline", async () => {
    const lease = await bench.open();
    const stopper = await start(lease, STOPPER);
    const late = { code: "deadline_exceeded" };
    const upload = lease.upload("/usr/bin", "/workspace/bin", { deadlineMs: 200 });
    expect(await upload.catch((error: unknown) => error)).toMatchObject(late);
    const download = lease.download("/usr/lib", `${bench.dirs.top}/lib`, { deadlineMs: 200 });
    expect(await download.catch((error: unknown) => error)).toMatchObject(late);
    for (let round = 0; round < 10; round += 1) {
      const command = lease.invoke({ executable: "sleep", arguments: ["1000"], deadlineMs: 50 });
      expect(await command.catch((error: unknown) => error)).toMatchObject(late);
    }
    stopper.kill("user");
    expect((await stopper.outcome).reason).toBe("user");
    expect((await lease.invoke({ executable: "true" })).status).toBe(0);
    await lease.release();
  });

  test("that stops a start before it has joined its group does not cost the sandbox", async () => {
    const lease = await bench.open();
    const ambush = await start(lease, AMBUSH);
    for (let round = 0; round < 5; round += 1) {
      const command = lease.invoke({ executable: "sleep", arguments: ["1000"], deadlineMs: 50 });
      expect(await command.catch((error: unknown) => error)).toMatchObject({
        code: "deadline_exceeded",
      });
    }
    ambush.kill("user");
    expect((await ambush.outcome).reason).toBe("user");
    expect((await lease.invoke({ executable: "true" })).status).toBe(0);
    await lease.release();
  });

  test("that stops others cannot keep a transfer without deadline from the end of the lease", async () => {
    const lease = await bench.open();
    await start(lease, STOPPER);
    const upload = lease.upload("/usr/bin", "/workspace/bin").catch((error: unknown) => error);
    await lease.release();
    expect(await upload).toMatchObject({ code: expect.stringMatching(/canceled|unavailable/) });
  });

  test("that starts while its lease is released is cancelled or shut down, and nothing is unhandled", async () => {
    rejections.length = 0;
    for (let round = 0; round < 60; round += 1) {
      const lease = await bench.open();
      const ended = lease
        .exec({ executable: "sleep", arguments: ["1000"], variables: ENV })
        .then(async (exec) => (await finish(exec)).outcome.reason)
        .catch((error: { code: string }) => error.code);
      await new Promise((resolve) => setTimeout(resolve, round % 4));
      await lease.release();
      expect(["canceled", "shutdown"]).toContain(await ended);
    }
    expect(rejections).toEqual([]);
  });

  test("cannot charge the host with queued signals or message queues", async () => {
    const lease = await bench.open();
    const code =
      "import ctypes, os, signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [50])\nlibc = ctypes.CDLL(None, use_errno=True)\nn = 0\nwhile n < 5000 and libc.sigqueue(os.getpid(), 50, None) == 0: n += 1\nq = libc.mq_open(b'/q', os.O_CREAT | os.O_RDWR, 0o600, None)\nprint('ready', n, q, ctypes.get_errno(), flush=True)\ntime.sleep(1000)\n";
    const before = queuedSignals();
    const exec = await lease.exec({ executable: PYTHON, arguments: ["-c", code], variables: ENV });
    const text = await readUntil(exec, "\n");
    // Others of this user on the host queue some too; the kernel counts them together.
    expect(queuedSignals() - before).toBeLessThan(1000);
    const limits = pidsOfRange(ID_RANGE)
      .map((pid) => readFileSync(`/proc/${pid}/limits`, "utf8"))
      .filter((table) => /^Max pending signals +128 +128 /m.test(table));
    expect(limits).toHaveLength(1);
    expect(limits[0]).toMatch(/^Max msgqueue size +0 +0 /m);
    exec.kill("user");
    expect(await text.rest()).toBe("");
    await until("the signals are gone", () => queuedSignals() < before + 100);
    await lease.release();
  });

  test("is not started with limits that are no numbers above 0, or too long", async () => {
    const lease = await bench.open();
    const wrong = [
      { wall_seconds: Number.NaN },
      { wall_seconds: 3e6 },
      { cpu_seconds: Number.POSITIVE_INFINITY },
      { cpu_seconds: -1 },
      { output_kb: 0 },
    ];
    for (const limits of wrong) {
      const spec = { executable: "true", arguments: [], variables: ENV, limits };
      const error = await lease.exec(spec).catch((cause: unknown) => cause);
      expect(error).toMatchObject({
        code: "invalid_argument",
        field: `limits.${Object.keys(limits)[0]}`,
      });
    }
    await lease.release();
  });

  test("that has time for ever is not ended at once", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: "sh",
      arguments: ["-c", "trap '' TERM; echo ready; read line; exit 7"],
      variables: ENV,
      stdin: "pipe",
    });
    const text = await readUntil(exec, "ready");
    exec.kill("user", { graceMs: 2 ** 31 });
    await lease.invoke({ executable: "true", deadlineMs: 2 ** 40 });
    await exec.write(Buffer.from("on\n"));
    expect(await exec.outcome).toMatchObject({ exitCode: 7, reason: "user" });
    await text.rest();
    await lease.release();
  });
});

/** Signals that are queued for this user, on the whole host (proc_pid_status(5)). */
function queuedSignals(): number {
  return Number(/^SigQ:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);
}
