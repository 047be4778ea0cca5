// From the start of `cprg worker` until it is registered, against a compiled program that prints a line.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cprgPath } from "../../e2e/cprg.ts";
import { type Plane, startPlane, startWorkerProcess } from "../../worker/process.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";

const SAMPLES = 30;

export async function workerReady(): Promise<Row> {
  const folder = mkdtempSync(join(tmpdir(), "cprg-hello-"));
  const hello = buildHello(folder);
  const plane = await startPlane();
  try {
    const samples = await sampleInTurn(
      {
        ours: async () => await ready(plane),
        reference: async () =>
          await timed(async () => {
            const child = Bun.spawn([hello], { stdout: "ignore" });
            await child.exited;
          }),
      },
      SAMPLES,
    );
    const what = "`cprg worker` to its registration / a compiled program that prints a line";
    return toRow({ id: "worker-ready", what, unit: "ms", bar: { sign: "<=", value: 6 } }, samples);
  } finally {
    await plane.close();
    rmSync(folder, { recursive: true });
  }
}

async function ready(plane: Plane): Promise<number> {
  let end: () => Promise<void> = async () => undefined;
  const ms = await timed(async () => {
    const worker = startWorkerProcess(plane.port, { program: [cprgPath()] });
    end = () => worker.end();
    // A claim can be asked for as soon as it is there.
    const link = await plane.registry.claim({ taskId: `t${performance.now()}`, epoch: 1 });
    void link.release();
  });
  await end();
  while (plane.registry.connected.length > 0) await Bun.sleep(1);
  return ms;
}

function buildHello(folder: string): string {
  const [source, path] = [join(folder, "hello.ts"), join(folder, "hello")];
  writeFileSync(source, 'console.log("hello");\n');
  const { exitCode } = Bun.spawnSync(
    [process.execPath, "build", "--compile", source, "--outfile", path],
    { stdout: "ignore", stderr: "ignore" },
  );
  if (exitCode !== 0) throw new Error("bun cannot compile hello.ts");
  return path;
}
