// How long after its deadline a busy loop is dead, against a C program with a timerfd and a kill.
// The row is about the worst of a hundred, not about the middle.

import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import type { LocalEngine } from "../../../src/sandbox/engine.ts";
import { openBenchEngine } from "../engine.ts";
import { startFloor } from "../floor.ts";
import { percentile, type Row, sampleInTurn, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

const SAMPLES = 100;
const TIMEOUT_MS = 50;
const BAR = 3;

export async function timeoutAccuracy({ floorPath }: BenchContext): Promise<Row> {
  await using bench = await openBenchEngine();
  const busy = ["/bin/bash", "-c", "while :; do :; done"];
  using floor = startFloor(floorPath, ["kill", String(TIMEOUT_MS), ...busy]);
  const ours = async () => await overrun(bench.engine, busy);
  const samples = await sampleInTurn({ ours, reference: floor.sample }, SAMPLES);
  const what = "death after the deadline of a busy loop, p99 / timerfd and SIGKILL in C";
  const facts = {
    id: "timeout-accuracy",
    what,
    unit: "ms",
    bar: { sign: "<=", value: BAR },
  } as const;
  const p99 = percentile(samples.ours, 99);
  const reference = percentile(samples.reference, 99);
  const ratio = p99 / reference;
  return { ...toRow(facts, samples), ours: p99, reference, ratio, pass: ratio <= BAR };
}

/** From the deadline to the death: init's clock readings at both ends of the program's life. */
async function overrun(engine: LocalEngine, [executable = "", ...args]: readonly string[]) {
  const lease = await engine.open(await engine.reserve(DEFAULT_LIMITS));
  try {
    const exec = await lease.exec({
      executable,
      arguments: args,
      variables: { PATH: "/usr/bin:/bin" },
      limits: { wall_seconds: TIMEOUT_MS / 1000 },
    });
    const outcome = await exec.outcome;
    if (outcome.reason !== "wall_limit") throw new Error(JSON.stringify(outcome));
    return outcome.durationMs - TIMEOUT_MS;
  } finally {
    await lease.release();
  }
}
