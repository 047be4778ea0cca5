// As python-cold, with sandboxes that are built and wait.

import { samplePython } from "../python-job.ts";
import { type Row, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

const POOL = 4;

export async function pythonWarm(context: BenchContext): Promise<Row> {
  const samples = await samplePython(context, POOL);
  const what = "the same from a pool of sandboxes / bare python3 -c";
  return toRow({ id: "python-warm", what, unit: "ms", bar: { sign: "<=", value: 0.3 } }, samples);
}
