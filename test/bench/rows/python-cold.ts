// print(6*7) over HTTP, from submit to the terminal result, against a bare python3 -c. The server
// is the compiled binary; each job has code of its own, and its output is checked.

import { makeHome } from "../../e2e/cprg.ts";
import { type Serving, serve } from "../../e2e/server.ts";
import { startFloor } from "../floor.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

const SAMPLES = 100;

export async function pythonCold({ floorPath }: BenchContext): Promise<Row> {
  using home = makeHome();
  await using server = await serve(home, { env: { CPRG_LOG: "error" } });
  using floor = startFloor(floorPath, ["run", "/usr/bin/python3", "-c", "print(6*7)"]);
  let count = 0;
  const ours = async (): Promise<number> => {
    count += 1;
    return await timed(async () => await runJob(server, count));
  };
  const samples = await sampleInTurn({ ours, reference: floor.sample }, SAMPLES);
  const what = "print(6*7), POST to result over HTTP / bare python3 -c";
  return toRow({ id: "python-cold", what, unit: "ms", bar: { sign: "<=", value: 1.4 } }, samples);
}

async function runJob(server: Serving, count: number): Promise<void> {
  const id = await server.submit({ language: "python", code: `print(6*7, ${count})` });
  const response = await server.request(`/v1/jobs/${id}/result?wait_seconds=60`);
  const result = (await response.json()) as { status: string; stdout: string };
  if (result.status !== "succeeded" || result.stdout !== `42 ${count}\n`) {
    throw new Error(`job ${id}: ${JSON.stringify(result)}`);
  }
}
