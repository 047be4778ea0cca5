// A new sandbox for /bin/true, from admission to removal, against vfork, execve and wait of it.

import { openBenchEngine } from "../engine.ts";
import { startFloor } from "../floor.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

const SAMPLES = 200;

export async function execCold({ floorPath }: BenchContext): Promise<Row> {
  await using bench = await openBenchEngine();
  using floor = startFloor(floorPath, ["run", "/bin/true"]);
  const samples = await sampleInTurn(
    { ours: async () => await timed(bench.runTrue), reference: floor.sample },
    SAMPLES,
  );
  const what = "sandboxed /bin/true, opened to removed / vfork, execve, wait";
  return toRow({ id: "exec-cold", what, unit: "ms", bar: { sign: "<=", value: 2.5 } }, samples);
}
