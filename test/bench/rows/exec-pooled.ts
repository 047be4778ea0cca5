// As exec-cold, with a sandbox that is built and waits.

import { openBenchEngine } from "../engine.ts";
import { startFloor } from "../floor.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

const SAMPLES = 200;
const POOL = 2;

export async function execPooled({ floorPath }: BenchContext): Promise<Row> {
  await using bench = await openBenchEngine(POOL);
  using floor = startFloor(floorPath, ["run", "/bin/true"]);
  const ours = async (): Promise<number> => {
    // The building of successors is not what is measured, nor may it be beside what is.
    while (bench.engine.status().pooled < POOL) await new Promise(setImmediate);
    return await timed(bench.runTrue);
  };
  const samples = await sampleInTurn({ ours, reference: floor.sample }, SAMPLES);
  const what = "/bin/true in a sandbox that waits, opened to removed / vfork, execve, wait";
  return toRow({ id: "exec-pooled", what, unit: "ms", bar: { sign: "<=", value: 1.3 } }, samples);
}
