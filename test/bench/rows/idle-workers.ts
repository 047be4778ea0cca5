// What an idle worker costs the control plane: its memory at 1000 of them, in a process of its own, each
// on a connection of its own. Then all of many more connect and answer one round of claims.

import { join } from "node:path";
import { jsonLines } from "../../bridge/control.ts";
import { TOKEN } from "../../worker/process.ts";
import { type Row, SAMPLES_MIN, toRow } from "../row.ts";

const IDLE = 1000;
/** CPRG_BENCH_WORKERS: how many connect and answer in all. */
const ALL = Number(process.env["CPRG_BENCH_WORKERS"] ?? 10_000);
const STEPS = SAMPLES_MIN;
const LIMIT_KIB = 100;
const DIALERS = join(import.meta.dir, "../../fixtures/many-dialers.ts");
const PLANE = join(import.meta.dir, "../idle-plane.ts");
/** Workers of one process: each has a descriptor there and one at the control plane. */
const PER_PROCESS = 2500;

export async function idleWorkers(): Promise<Row> {
  const plane = Bun.spawn([process.execPath, PLANE], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  const lines = jsonLines(plane.stdout);
  const said = async (): Promise<Record<string, number>> => {
    const { done, value } = await lines.next();
    if (done) throw new Error("the control plane ended");
    return value as Record<string, number>;
  };
  const ask = async (line: string): Promise<Record<string, number>> => {
    plane.stdin.write(`${line}\n`);
    await plane.stdin.flush();
    return await said();
  };
  const dialers: Bun.Subprocess<"pipe">[] = [];
  const dial = (port: number, count: number): void => {
    const words = [process.execPath, DIALERS, `${port}`, `${count}`, TOKEN];
    dialers.push(Bun.spawn(words, { stdin: "pipe", stdout: "ignore", stderr: "inherit" }));
  };
  try {
    const { port = 0, rss: empty = 0 } = await said();
    const ours: number[] = [];
    for (let step = 1; step <= STEPS; step += 1) {
      const before = Math.round((IDLE * (step - 1)) / STEPS);
      const count = Math.round((IDLE * step) / STEPS);
      dial(port, count - before);
      const { rss = 0 } = await ask(`connected ${count}`);
      ours.push((rss - empty) / 1024 / count);
    }
    // The whole of it is what counts: a process that has just started grows for its own sake.
    const atIdle = ours.at(-1) ?? Number.NaN;
    for (let left = ALL - IDLE; left > 0; left -= PER_PROCESS)
      dial(port, Math.min(left, PER_PROCESS));
    await ask(`connected ${ALL}`);
    const { answered } = await ask("round");
    if (answered !== ALL) throw new Error(`${answered} of ${ALL} workers answered`);
    const what = `KiB of the control plane for each of ${IDLE} idle workers / the bar; ${ALL} answered`;
    const facts = { id: "idle-workers", what, unit: "KiB", bar: { sign: "<=", value: 1 } } as const;
    const row = toRow(facts, { ours, reference: ours.map(() => LIMIT_KIB) });
    return { ...row, ours: atIdle, ratio: atIdle / LIMIT_KIB, pass: atIdle <= LIMIT_KIB };
  } finally {
    for (const child of [...dialers, plane]) {
      child.kill("SIGKILL");
      await child.exited;
    }
  }
}
