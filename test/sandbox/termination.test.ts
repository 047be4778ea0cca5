import { expect, test } from "bun:test";
import { outcomeStatus } from "../../src/core/outcome.ts";
import { requireHost } from "../helpers/host.ts";
import { paced } from "./pace.ts";
import { isInit, pidsOfRange } from "./snapshot.ts";
import {
  ENV,
  finish,
  fixture,
  ID_RANGE,
  PYTHON,
  readUntil,
  until,
  useEngine,
} from "./test-engine.ts";

const host = requireHost({ sandbox: true });

const SPIN = "print('ready', flush=True)\nwhile True: pass\n";
const IGNORE_TERM = `import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n${SPIN}`;
const STOP =
  "import os, signal\nprint('ready', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n";
const DEAD_LEADER =
  "import ctypes, signal, threading, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nthreading.Thread(target=lambda: [time.sleep(.05) for _ in range(600)]).start()\nprint('ready', flush=True)\nctypes.CDLL(None).pthread_exit(0)\n";
const DEAD_LEADERS =
  "import ctypes, os, threading, time\nlibc = ctypes.CDLL(None)\ndef go():\n  if os.fork() == 0:\n    threading.Thread(target=go).start()\n    libc.pthread_exit(0)\n  os._exit(0) if os.getpid() != first else time.sleep(1000)\nfirst = os.getpid()\nprint('ready', flush=True)\ngo()\n";
const CHILDREN = `import os, time\nfor _ in range(50):\n  if os.fork() == 0:\n    time.sleep(1000)\n${SPIN}`;

/** Programs that do not want to end. */
const STUBBORN: Readonly<Record<string, string>> = {
  "a busy loop": SPIN,
  "one that ignores SIGTERM": IGNORE_TERM,
  "one that has stopped itself": STOP,
  "one whose main thread has ended, and another ignores SIGTERM": DEAD_LEADER,
  "a chain of such, each started by the one before": DEAD_LEADERS,
  "one with 50 children": CHILDREN,
  "a daemon that keeps forking in sessions of its own": fixture("daemon-forks.py"),
};

host.describe("the end of a program", () => {
  const bench = useEngine();

  /** Host pids of the sandbox's programs at this instant; process 1 is not one of them. */
  const living = (): number => pidsOfRange(ID_RANGE).length - 1;

  for (const [name, code] of Object.entries(STUBBORN)) {
    test(`${name} is timed out, and every host pid is gone when the outcome is there`, async () => {
      // Time enough for fifty forks on a busy machine.
      const wall = paced(name.includes("children") ? 4 : 1);
      const lease = await bench.open({ wall_seconds: wall, pids: 100 });
      await lease.putFile("/workspace/main.py", Buffer.from(code));
      const exec = await lease.exec({
        executable: PYTHON,
        arguments: ["/workspace/main.py"],
        variables: ENV,
      });
      const reading = finish(exec);
      const outcome = await exec.outcome;
      expect(living()).toBe(0);
      expect(outcome).toMatchObject({ reason: "wall_limit", signal: "SIGKILL", exitCode: null });
      expect(outcomeStatus(outcome)).toBe("timed_out");
      expect(outcome.limitsHit).toEqual([
        { limit: "wall_seconds", value: wall, observed: expect.any(Number), sampled: false },
      ]);
      expect(outcome.killed).toBeGreaterThanOrEqual(name.includes("children") ? 40 : 1);
      const { notices, stdout } = await reading;
      expect(stdout).toBe("ready\n");
      expect(notices.filter(({ type }) => type === "limit")).toHaveLength(1);
      expect((await lease.invoke({ executable: "true" })).status).toBe(0);
      await lease.release();
    });
  }

  test("what outlives the program is killed, and counted", async () => {
    const lease = await bench.open();
    await lease.putFile("/workspace/main.py", Buffer.from(fixture("daemon-forks.py")));
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["/workspace/main.py", "exit"],
      variables: ENV,
    });
    const outcome = await exec.outcome;
    expect(living()).toBe(0);
    expect(outcome).toMatchObject({ exitCode: 5, reason: "exit" });
    expect(outcome.killed).toBeGreaterThan(0);
    await lease.release();
  });

  test("CPU time of all processes together is limited", async () => {
    const burn = "import os\nfor _ in range(3): os.fork()\nwhile True: pass\n";
    const { outcome } = await bench.python(burn, {
      limits: { cpu_seconds: 0.3, cpu_cores: 2, wall_seconds: paced(30) },
    });
    expect(outcome).toMatchObject({ reason: "cpu_limit", signal: "SIGKILL" });
    expect(outcomeStatus(outcome)).toBe("timed_out");
    expect(outcome.limitsHit.map(({ limit }) => limit)).toEqual(["cpu_seconds"]);
    expect(outcome.usage?.cpu_ms).toBeGreaterThanOrEqual(300);
  });

  test("a program that sleeps uses no CPU time", async () => {
    const { outcome } = await bench.python(`import time\ntime.sleep(${paced(1.2)})\n`, {
      limits: { cpu_seconds: paced(1) },
    });
    expect(outcome).toMatchObject({ reason: "exit", exitCode: 0, limitsHit: [] });
  });

  test("a cancelled program may clean up within its grace", async () => {
    const code =
      "import os, signal, sys\ndef stop(*_):\n  os.write(1, b'bye')\n  os._exit(9)\nsignal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\nwhile True: signal.pause()\n";
    const lease = await bench.open();
    await lease.putFile("/workspace/main.py", Buffer.from(code));
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["main.py"],
      variables: ENV,
    });
    const text = await readUntil(exec, "ready");
    exec.kill("user", { graceMs: paced(20_000) });
    const outcome = await exec.outcome;
    expect(outcome).toMatchObject({ exitCode: 9, signal: null, reason: "user" });
    expect(outcomeStatus(outcome)).toBe("cancelled");
    expect((await text.rest()).trim()).toBe("bye");
    await lease.release();
  });

  test("a second cancel shortens the grace and keeps the first reason", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", IGNORE_TERM],
      variables: ENV,
    });
    await readUntil(exec, "ready");
    exec.kill("user", { graceMs: 1_000_000 });
    exec.kill("shutdown", { graceMs: 0 });
    expect(await exec.outcome).toMatchObject({ reason: "user", signal: "SIGKILL" });
    await lease.release();
  });

  test("a cancel after the end changes nothing", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: "sh",
      arguments: ["-c", "exit 4"],
      variables: ENV,
    });
    const outcome = await exec.outcome;
    exec.kill("user");
    exec.signal("SIGTERM");
    expect(outcome).toMatchObject({ reason: "exit", exitCode: 4 });
    await lease.release();
  });

  test("signals reach the main process, and unknown ones are refused", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", SPIN],
      variables: ENV,
    });
    await readUntil(exec, "ready");
    expect(() => exec.signal("SIGNOTHING")).toThrow(/unknown name/);
    exec.signal("SIGINT");
    // Python turns SIGINT into KeyboardInterrupt, and that into its own death by SIGINT.
    expect(await exec.outcome).toMatchObject({ reason: "signal", signal: "SIGINT" });
    await lease.release();
  });

  test("killing one program spares its neighbours", async () => {
    const lease = await bench.open();
    const [left, right] = await Promise.all(
      [0, 1].map(() =>
        lease.exec({ executable: "cat", arguments: [], variables: ENV, stdin: "pipe" }),
      ),
    );
    left?.kill("user");
    expect((await left?.outcome)?.reason).toBe("user");
    await right?.write(Buffer.from("still here"));
    await right?.closeInput();
    expect(right && (await finish(right)).stdout).toBe("still here");
    await lease.release();
  });

  test("the end of the whole sandbox from outside is no exit of the program", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({ executable: "sleep", arguments: ["1000"], variables: ENV });
    const init = pidsOfRange(ID_RANGE).find((pid) => isInit(pid));
    if (init === undefined) throw new Error("no process 1");
    process.kill(init, "SIGKILL");
    const outcome = await exec.outcome;
    expect(outcome).toMatchObject({
      exitCode: null,
      signal: null,
      reason: "setup_failed",
      error: { message: expect.stringContaining("SIGKILL") },
    });
    expect(outcomeStatus(outcome)).toBe("error");
    expect(pidsOfRange(ID_RANGE)).toEqual([]);
    await lease.release();
  });

  test("a hundred timeouts in a row leave no process behind at the instant of the outcome", async () => {
    for (let round = 0; round < 100; round += 1) {
      const lease = await bench.open({ wall_seconds: 0.03 });
      const exec = await lease.exec({
        executable: "sh",
        arguments: ["-c", "(setsid sh -c 'while :; do sleep 0.01 & done' &) ; while :; do :; done"],
        variables: ENV,
      });
      const outcome = await exec.outcome;
      expect(living()).toBe(0);
      expect(outcome.reason).toBe("wall_limit");
      await lease.release();
      expect(pidsOfRange(ID_RANGE)).toEqual([]);
    }
    await until("nothing is left", () => pidsOfRange(ID_RANGE).length === 0);
  });
});
