// print(6*7) over HTTP, from submit to the terminal result, against a bare python3 -c. The server is
// the compiled binary; each job has code of its own, and its output is checked.

import { makeHome } from "../e2e/cprg.ts";
import { type Serving, serve } from "../e2e/server.ts";
import { startFloor } from "./floor.ts";
import { type Row, sampleInTurn, timed } from "./row.ts";
import type { BenchContext } from "./run.ts";

const SAMPLES = 100;

/**
 * Takes samples of both in turn.
 *
 * @param pool sandboxes that the server keeps built
 */
export async function samplePython(
  { floorPath }: BenchContext,
  pool: number,
): Promise<Row["samples"]> {
  using home = makeHome();
  const env = { CPRG_LOG: "error", CPRG_POOL: String(pool) };
  await using server = await serve(home, { env });
  using floor = startFloor(floorPath, ["run", "/usr/bin/python3", "-c", "print(6*7)"]);
  let count = 0;
  const ours = async (): Promise<number> => {
    count += 1;
    return await timed(async () => await runJob(server, count));
  };
  return await sampleInTurn({ ours, reference: floor.sample }, SAMPLES);
}

async function runJob(server: Serving, count: number): Promise<void> {
  const id = await server.submit({ language: "python", code: `print(6*7, ${count})` });
  const response = await server.request(`/v1/jobs/${id}/result?wait_seconds=60`);
  const result = (await response.json()) as { status: string; stdout: string };
  if (result.status !== "succeeded" || result.stdout !== `42 ${count}\n`) {
    throw new Error(`job ${id}: ${JSON.stringify(result)}`);
  }
}
