// print(6*7) over HTTP, from submit to the terminal result, against a bare python3 -c. The server
// is the compiled binary and builds each sandbox when it is asked for; each job has code of its own,
// and its output is checked.

import { samplePython } from "../python-job.ts";
import { type Row, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

export async function pythonCold(context: BenchContext): Promise<Row> {
  const samples = await samplePython(context, 0);
  const what = "print(6*7), POST to result over HTTP / bare python3 -c";
  return toRow({ id: "python-cold", what, unit: "ms", bar: { sign: "<=", value: 1.4 } }, samples);
}
