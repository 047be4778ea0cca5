import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { requireHost } from "../helpers/host.ts";
import { paced } from "./pace.ts";
import { pidsOfRange } from "./snapshot.ts";
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
const MIB = 1024 * 1024;

/** What the threads of a process wait for in the kernel (proc(5)). */
function waitsIn(pid: number): string[] {
  return readdirSync(`/proc/${pid}/task`).map((task) =>
    readFileSync(`/proc/${pid}/task/${task}/wchan`, "utf8"),
  );
}

/** Highest resident size of this process, sampled while a promise is pending. */
async function peakDuring<T>(work: Promise<T>): Promise<{ value: T; peakBytes: number }> {
  let peakBytes = process.memoryUsage.rss();
  const timer = setInterval(() => {
    peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
  }, 5);
  const value = await work;
  clearInterval(timer);
  return { value, peakBytes };
}

host.describe("output", () => {
  const bench = useEngine();
  const start = async (args: readonly string[], output_kb = 64) => {
    const lease = await bench.open({ output_kb, wall_seconds: paced(60), cpu_seconds: paced(60) });
    await lease.putFile("/workspace/flood.py", Buffer.from(fixture("flood.py")));
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["flood.py", ...args],
      variables: ENV,
    });
    return { lease, exec };
  };

  test("a gigabyte on two streams is cut once a stream, and costs no memory", async () => {
    Bun.gc(true);
    const baseline = process.memoryUsage.rss();
    const { lease, exec } = await start(["512", "both"]);
    const { value: ran, peakBytes } = await peakDuring(finish(exec));
    expect(ran.stdout.length).toBe(64 * 1024);
    expect(ran.stderr.length).toBe(64 * 1024);
    expect(ran.outcome).toMatchObject({ reason: "exit", exitCode: 0 });
    const cuts = ran.notices.filter(({ type }) => type === "truncated");
    expect(cuts.map((notice) => "channel" in notice && notice.channel).sort()).toEqual([
      "stderr",
      "stdout",
    ]);
    expect(ran.outcome.limitsHit).toEqual([
      { limit: "output_kb", value: 64, observed: 64, sampled: false },
    ]);
    expect((peakBytes - baseline) / MIB).toBeLessThan(32);
    await lease.release();
  });

  test("output exactly at the limit is not cut", async () => {
    const { lease, exec } = await start(["1"], 1024);
    const ran = await finish(exec);
    expect(ran.stdout.length).toBe(MIB);
    expect(ran.notices.filter(({ type }) => type !== "usage")).toEqual([]);
    expect(ran.outcome.limitsHit).toEqual([]);
    await lease.release();
  });

  test("a reader that never reads holds back the program, not memory", async () => {
    const baseline = process.memoryUsage.rss();
    const { lease, exec } = await start(["1024"], 65_536);
    let isOver = false;
    void exec.outcome.then(() => {
      isOver = true;
    });
    await until("it waits in its write", () => {
      const pids = pidsOfRange(ID_RANGE);
      return pids.some((pid) => waitsIn(pid).some((where) => where.includes("pipe_write")));
    });
    expect(isOver).toBe(false);
    expect((process.memoryUsage.rss() - baseline) / MIB).toBeLessThan(32);
    exec.kill("user");
    expect((await exec.outcome).reason).toBe("user");
    await lease.release();
  });

  test("a slow reader gets every byte in order", async () => {
    const lease = await bench.open({ output_kb: 4096 });
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", "import sys\nfor i in range(100000): sys.stdout.write('%d\\n' % i)"],
      variables: ENV,
    });
    let text = "";
    for await (const notice of exec.notices) {
      if (notice.type !== "output") continue;
      text += Buffer.from(notice.bytes).toString();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(text).toBe(Array.from({ length: 100_000 }, (_, index) => `${index}\n`).join(""));
    await lease.release();
  });

  test("bytes pass as they are", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 10)"],
      variables: ENV,
    });
    const parts: Uint8Array[] = [];
    for await (const notice of exec.notices) if (notice.type === "output") parts.push(notice.bytes);
    const expected = Buffer.from(Array.from({ length: 2560 }, (_, index) => index % 256));
    expect(Buffer.concat(parts).equals(expected)).toBe(true);
    await lease.release();
  });

  test("streams end when the program ends, whoever else holds them", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: "sh",
      arguments: ["-c", "sleep 1000 & echo done"],
      variables: ENV,
    });
    const ran = await finish(exec);
    expect(ran.stdout).toBe("done\n");
    expect(ran.outcome).toMatchObject({ reason: "exit", exitCode: 0, killed: 1 });
    await lease.release();
  });

  test("a program of another exec that was handed the pipe does not keep it open", async () => {
    const lease = await bench.open();
    // The first passes its standard output to the second over a socket in /tmp.
    const keeper = await lease.exec({
      executable: PYTHON,
      arguments: [
        "-c",
        "import socket, array, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('/tmp/s')\ns.listen()\nprint('listening', flush=True)\nc, _ = s.accept()\nsocket.recv_fds(c, 1, 1)\nprint('kept', flush=True)\ntime.sleep(1000)\n",
      ],
      variables: ENV,
    });
    const keeping = await readUntil(keeper, "listening");
    const giver = await lease.exec({
      executable: PYTHON,
      arguments: [
        "-c",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/tmp/s')\nprint('given', flush=True)\nsocket.send_fds(s, [b'x'], [1])\ns.recv(1)\n",
      ],
      variables: ENV,
    });
    await keeping.until("kept");
    giver.kill("user");
    const ran = await finish(giver);
    expect(ran.stdout).toBe("given\n");
    keeper.kill("user");
    await keeper.outcome;
    await lease.release();
  });

  test("a long run reports what it uses", async () => {
    const ran = await bench.python(
      `import time\nx = bytearray(30 << 20)\nend = time.monotonic() + ${paced(1.3)}\nwhile time.monotonic() < end: pass\n`,
    );
    const usage = ran.notices.filter((notice) => notice.type === "usage");
    expect(usage.length).toBeGreaterThanOrEqual(1);
    expect(usage.at(-1)?.cpuMs).toBeGreaterThan(50);
    // The last may be of the moment in which it ends, and has given its memory back.
    const fullest = usage.toSorted((a, b) => (b.memoryBytes ?? 0) - (a.memoryBytes ?? 0))[0];
    expect(fullest?.memoryBytes).toBeGreaterThan(30 * MIB);
    expect(fullest?.pids).toBe(1);
  });
});
