// Every limit of the contract, hit by a program that wants more: what the event says, the value that
// was asked for, what was observed, and who decides how the program ends.

import { expect, test } from "bun:test";
import { LIMIT_NAMES, type LimitName, type Limits } from "../../src/core/limits.ts";
import type { Reason } from "../../src/core/reasons.ts";
import { requireHost } from "../helpers/host.ts";
import { paced } from "./pace.ts";
import { fixture, type Ran, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

/** A program that wants more than one limit allows. */
interface Row {
  readonly limits: Partial<Limits>;
  readonly code: string;
  /** How it ends: by itself with a code, or ended by us. */
  readonly ends: { readonly reason: Reason; readonly exitCode: number | null };
  /** Least and most that the event may say was observed; null where the kernel reports nothing. */
  readonly observed: readonly [number, number] | null;
  readonly isSampled?: boolean;
  /** What the program found out by itself. */
  readonly stdout?: string;
  readonly check?: (ran: Ran, ground: { readonly hasGroups: boolean }) => void;
}

const ENDED = (reason: Reason) => ({ reason, exitCode: null });
const EXITED = (exitCode: number) => ({ reason: "exit" as const, exitCode });
/** Python that does something until the system refuses, prints the error and a count, and exits 4. */
const untilRefused = (before: string, step: string, count: string, after = ""): string =>
  `import errno, os, sys\n${before}\ntry:\n  while True: ${step}\nexcept OSError as e: print(errno.errorcode[e.errno], ${count})\n${after}\nsys.exit(4)\n`;

const WALL = paced(1);
const ROWS: Readonly<Record<LimitName, Row>> = {
  wall_seconds: {
    limits: { wall_seconds: WALL },
    code: "import time\ntime.sleep(100000)\n",
    ends: ENDED("wall_limit"),
    observed: [WALL, Number.POSITIVE_INFINITY],
  },
  cpu_seconds: {
    limits: { cpu_seconds: 0.5, wall_seconds: paced(60) },
    code: "while True: pass\n",
    ends: ENDED("cpu_limit"),
    observed: [0.5, Number.POSITIVE_INFINITY],
  },
  cpu_cores: {
    limits: { cpu_cores: 0.25 },
    code: `import time\nend = time.monotonic() + ${paced(1)}\nwhile time.monotonic() < end: pass\n`,
    ends: EXITED(0),
    observed: null,
    check: ({ outcome }, { hasGroups }) => {
      const share = (outcome.usage?.cpu_ms ?? 0) / outcome.durationMs;
      expect(share).toBeGreaterThan(0.01);
      // Room for the kernel's periods; without the limit a busy loop has all of a core.
      if (hasGroups) expect(share).toBeLessThan(0.5);
    },
  },
  mem_mb: {
    limits: { mem_mb: 64 },
    code: "x = []\nwhile True: x.append(bytearray(4 << 20))\n",
    ends: ENDED("oom"),
    observed: [56, 64],
  },
  pids: {
    limits: { pids: 12 },
    code: untilRefused(
      "import time\npids = [1]",
      "pids.append(os.fork()) or pids[-1] or time.sleep(100000)",
      "len(pids)",
      // Where only a look finds it full, it is full for long enough.
      "time.sleep(1)",
    ),
    ends: EXITED(4),
    observed: [12, 12],
    stdout: "EAGAIN 12\n",
  },
  disk_mb: {
    limits: { disk_mb: 8 },
    code: untilRefused(
      "f = open('/tmp/f', 'wb', buffering=0)",
      "f.write(bytes(1 << 16))",
      "round(os.path.getsize('/tmp/f') / (1 << 20))",
    ),
    ends: EXITED(4),
    observed: [7.9, 8],
    isSampled: true,
    stdout: "ENOSPC 8\n",
  },
  inodes: {
    limits: { inodes: 100 },
    // The program itself is one.
    code: untilRefused(
      "n = iter(range(1000))",
      "open(f'/tmp/{next(n)}', 'x').close()",
      "next(n) - 1",
    ),
    ends: EXITED(4),
    observed: [99, 100],
    isSampled: true,
    stdout: "ENOSPC 99\n",
  },
  file_mb: {
    limits: { file_mb: 3 },
    code: untilRefused(
      "f = open('/tmp/f', 'wb', buffering=0)",
      "f.write(bytes(1 << 20))",
      "os.path.getsize('/tmp/f') >> 20",
    ),
    ends: EXITED(4),
    observed: null,
    stdout: "EFBIG 3\n",
  },
  open_files: {
    limits: { open_files: 50 },
    code: untilRefused("opened = []", "opened.append(open('/dev/null'))", "len(opened) + 3"),
    ends: EXITED(4),
    observed: null,
    stdout: "EMFILE 50\n",
  },
  output_kb: {
    limits: { output_kb: 64 },
    code: `import sys\nsys.argv = ['flood', '1']\n${fixture("flood.py")}`,
    ends: EXITED(0),
    observed: [64, 64],
    check: ({ notices, stdout }) => {
      expect(stdout.length).toBe(64 * 1024);
      expect(notices.filter(({ type }) => type === "truncated")).toHaveLength(1);
    },
  },
};

host.describe("the limit", () => {
  const bench = useEngine();
  const hasGroups = (): boolean => !bench.engine.missing.includes("cgroup");
  const isWatchedFor = (name: LimitName): boolean =>
    !hasGroups() && (name === "mem_mb" || name === "pids");

  for (const name of LIMIT_NAMES) {
    test(`${name} holds, and what hit it is told once with its value`, async () => {
      const row = ROWS[name];
      const ran = await bench.python(row.code, { limits: row.limits });
      expect(ran.outcome).toMatchObject(row.ends);
      const told = ran.notices.flatMap((notice) => (notice.type === "limit" ? [notice.hit] : []));
      expect(told).toEqual([...ran.outcome.limitsHit]);
      if (row.observed === null) expect(told).toEqual([]);
      else {
        // Without a group the engine looks, and may see more than the limit before it acts.
        const isWatched = isWatchedFor(name);
        const [least, most] = isWatched ? [row.observed[0], row.observed[1] * 8] : row.observed;
        const value = row.limits[name];
        expect(told).toEqual([
          {
            limit: name,
            value,
            observed: expect.any(Number),
            sampled: isWatched || row.isSampled === true,
          },
        ] as never);
        expect(told[0]?.observed).toBeGreaterThanOrEqual(least);
        expect(told[0]?.observed).toBeLessThanOrEqual(most);
      }
      if (row.stdout !== undefined) expect(ran.stdout).toBe(row.stdout);
      row.check?.(ran, { hasGroups: hasGroups() });
    });
  }
});
