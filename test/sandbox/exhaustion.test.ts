import { expect, test } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { sandboxGroups } from "./group-values.ts";
import { paced } from "./pace.ts";
import { pidsOfRange } from "./snapshot.ts";
import { ENV, ID_RANGE, PYTHON, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

const FORK_BOMB =
  "import os\nfor _ in range(3000):\n  try: os.fork()\n  except OSError: pass\nwhile True: pass\n";

host.describe("a program that takes all it can get", () => {
  const bench = useEngine();

  test("a fork bomb stays within its number of processes and ends with its time", async () => {
    const { outcome } = await bench.python(FORK_BOMB, {
      limits: { pids: 30, wall_seconds: paced(2) },
      onStart: async (exec) => {
        // The most that the host ever has of it: process 1 besides.
        let most = 0;
        let isOver = false;
        void exec.outcome.then(() => {
          isOver = true;
        });
        while (!isOver) {
          most = Math.max(most, pidsOfRange(ID_RANGE).length);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        // A busy host may look but once: that it was full is what the count says below.
        expect(most).toBeLessThanOrEqual(31);
      },
    });
    expect(["wall_limit", "cpu_limit"]).toContain(outcome.reason);
    expect(outcome.limitsHit).toContainEqual({
      limit: "pids",
      value: 30,
      observed: 30,
      sampled: bench.engine.missing.includes("cgroup"),
    });
    expect(outcome.usage?.pids_peak).toBe(30);
    expect(outcome.killed).toBeGreaterThan(1);
  });

  test("threads count as processes, and a refusal is an event while the exit code decides", async () => {
    const { outcome } = await bench.python(
      "import threading, time, sys\ntry:\n  for _ in range(100): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nexcept RuntimeError: sys.exit(6)\n",
      { limits: { pids: 20 } },
    );
    expect(outcome).toMatchObject({ reason: "exit", exitCode: 6 });
    // Nothing counts a refusal without a group: only a look that came in time shows it.
    const isCounted = !bench.engine.missing.includes("cgroup");
    if (isCounted) expect(outcome.limitsHit.map(({ limit }) => limit)).toEqual(["pids"]);
  });

  test("a full sandbox can still be served from outside", async () => {
    const lease = await bench.open({ pids: 10, wall_seconds: paced(20) });
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["-c", FORK_BOMB],
      variables: ENV,
    });
    await lease.putFile("/workspace/late", Buffer.from("late"));
    exec.kill("user");
    expect((await exec.outcome).reason).toBe("user");
    expect((await lease.invoke({ executable: "cat", arguments: ["late"] })).stdout).toBe("late");
    await lease.release();
    expect(sandboxGroups(bench.engine.instance)).toEqual([]);
  });

  test("a disk filler meets ENOSPC at disk_mb, whichever of the four places it fills", async () => {
    for (const place of ["/workspace", "/home/agent", "/tmp", "/dev/shm"]) {
      const { outcome, stdout } = await bench.python(
        `import errno, os\nn = 0\ntry:\n  with open("${place}/big", "wb", buffering=0) as f:\n    while True: n += f.write(bytes(1 << 16))\nexcept OSError as e: print(errno.errorcode[e.errno], n >> 20)\n`,
        { limits: { disk_mb: 8, mem_mb: 64 } },
      );
      expect(stdout).toMatch(/^ENOSPC [78]\n$/);
      expect(outcome.limitsHit).toEqual([
        { limit: "disk_mb", value: 8, observed: expect.any(Number), sampled: true },
      ]);
      expect(outcome.reason).toBe("exit");
    }
  });

  test("the four places share one disk", async () => {
    const { stdout } = await bench.python(
      "import os\nprint(len({os.stat(p).st_dev for p in ('/workspace', '/home/agent', '/tmp', '/dev/shm')}))\n",
    );
    expect(stdout).toBe("1\n");
  });

  test("files are limited in number", async () => {
    const { stdout, outcome } = await bench.python(
      "import errno\nn = 0\ntry:\n  while True:\n    open(f'/tmp/{n}', 'w').close()\n    n += 1\nexcept OSError as e: print(errno.errorcode[e.errno], n)\n",
      { limits: { inodes: 100 } },
    );
    // The program itself is one.
    expect(stdout).toBe("ENOSPC 99\n");
    expect(outcome.limitsHit.map(({ limit }) => limit)).toEqual(["inodes"]);
  });

  test("one file is limited in size, and open files in number", async () => {
    const { stdout } = await bench.python(
      "import errno, os, resource\ntry:\n  with open('/tmp/f', 'wb', buffering=0) as f:\n    while True: f.write(bytes(1 << 20))\nexcept OSError as e: print(errno.errorcode[e.errno], os.path.getsize('/tmp/f') >> 20)\nopened = []\ntry:\n  while True: opened.append(open('/dev/null'))\nexcept OSError as e: print(errno.errorcode[e.errno], len(opened) + 3)\nprint(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_MEMLOCK))\n",
      { limits: { file_mb: 3, open_files: 50 } },
    );
    expect(stdout).toBe("EFBIG 3\nEMFILE 50\n(1, 1) (65536, 65536)\n");
  });

  test("watches of files are few, because the host's root is charged for them", async () => {
    const { stdout } = await bench.python(
      "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\ncount = 0\nwhile count < 100 and libc.inotify_init() >= 0: count += 1\nprint(count, os.strerror(ctypes.get_errno()))\n",
    );
    expect(stdout).toBe("8 Too many open files\n");
  });

  test("resource limits cannot be raised again", async () => {
    const { stdout } = await bench.python(
      "import resource\nfor name in ('NOFILE', 'FSIZE', 'NPROC', 'CORE', 'STACK', 'CPU'):\n  kind = getattr(resource, 'RLIMIT_' + name)\n  try:\n    resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n    print('raised', name)\n  except (ValueError, OSError): print('kept', name)\n",
    );
    expect(stdout).toBe(
      ["NOFILE", "FSIZE", "NPROC", "CORE", "STACK", "CPU"].map((name) => `kept ${name}\n`).join(""),
    );
  });
});
