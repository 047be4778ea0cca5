import { expect, test } from "bun:test";
import type { Limits } from "../../src/core/limits.ts";
import { requireHost } from "../helpers/host.ts";
import { sandboxGroups } from "./group-values.ts";
import { pidsOfRange } from "./snapshot.ts";
import { fixture, ID_RANGE, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const ROUNDS = 8;
const AT_ONCE = 8;

/** Programs, their limits, and how they end. */
const KINDS: readonly (readonly [string, Partial<Limits>, string])[] = [
  ["print(6 * 7)", {}, "exit 0"],
  ["import sys; sys.exit(9)", {}, "exit 9"],
  ["x = []\nwhile True: x.append(bytearray(1 << 22))", { mem_mb: 64 }, "oom null"],
  ["while True: pass", { wall_seconds: 0.5 }, "wall_limit null"],
  ["import os; os.kill(os.getpid(), 11)", {}, "signal null"],
  ["import sys\nfor _ in range(300): sys.stdout.write('x' * 10000)", { output_kb: 64 }, "exit 0"],
  [fixture("daemon-forks.py"), { wall_seconds: 1 }, "wall_limit null"],
];

host.describe("many sandboxes at once", () => {
  const bench = useEngine({ capacity: { memMb: 1024 } });

  test("each ends as its own program does, whoever else runs, and nothing is left", async () => {
    const jobs = Array.from({ length: ROUNDS * KINDS.length }, (_, index) => index);
    const work = async (): Promise<void> => {
      for (let job = jobs.pop(); job !== undefined; job = jobs.pop()) {
        const [code, limits, expected] = KINDS[job % KINDS.length] ?? ["", {}, ""];
        const { outcome } = await bench.python(code, { limits: { mem_mb: 128, ...limits } });
        expect(`${outcome.reason} ${outcome.exitCode}`).toBe(expected);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    expect(pidsOfRange(ID_RANGE)).toEqual([]);
    expect(sandboxGroups(bench.engine.instance)).toEqual([]);
    expect(bench.engine.status()).toMatchObject({
      sandboxes: 0,
      reserved: { memMb: 0, pids: 0 },
      waiting: 0,
    });
  });
});
