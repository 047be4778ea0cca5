// Output of a program and a file through the bridge, from a worker in another process, against ssh and
// scp on loopback. CPRG_BENCH_STREAM_MIB says how much of each.

import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LIVENESS } from "../../../src/control-plane/liveness.ts";
import { WorkerLease } from "../../../src/control-plane/worker-provider.ts";
import { cprgPath } from "../../e2e/cprg.ts";
import { startPlane, startWorkerProcess } from "../../worker/process.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";
import { type Ssh, startSsh } from "../ssh.ts";

const SAMPLES = 30;
const MIB = Number(process.env["CPRG_BENCH_STREAM_MIB"] ?? 256);
const BYTES = MIB * 1024 * 1024;

/** What a program prints. */
export async function execStream(): Promise<Row> {
  const words = ["head", "-c", `${BYTES}`, "/dev/zero"];
  const facts = { id: "exec-stream", what: `${MIB} MiB of a program's output / the same of ssh` };
  return await compared(facts, async (lease, ssh) => ({
    ours: async () => {
      const [executable = "", ...rest] = words;
      const exec = await lease.exec({ executable, arguments: rest, variables: {} });
      let bytes = 0;
      for await (const notice of exec.notices) {
        if (notice.type === "output") bytes += notice.bytes.length;
      }
      check(bytes);
    },
    reference: async () => {
      const child = Bun.spawn([...ssh.client, ...words], { stdout: "pipe" });
      let bytes = 0;
      for await (const piece of child.stdout) bytes += piece.length;
      await child.exited;
      check(bytes);
    },
  }));
}

/** One file, to the worker. */
export async function fileTransfer(): Promise<Row> {
  const folder = mkdtempSync(join(tmpdir(), "cprg-transfer-"));
  const [source, copied] = [join(folder, "source"), join(folder, "copied")];
  const fd = openSync(source, "w");
  ftruncateSync(fd, BYTES);
  closeSync(fd);
  const facts = {
    id: "file-transfer",
    what: `one file of ${MIB} MiB to a worker / the same by scp`,
  };
  try {
    return await compared(facts, async (lease, ssh) => ({
      ours: async () => {
        await lease.upload(source, "uploaded");
        check(statSync(join(lease.root, "uploaded")).size);
      },
      reference: async () => {
        const child = Bun.spawn([...ssh.copy, source, `${ssh.host}:${copied}`]);
        await child.exited;
        check(statSync(copied).size);
      },
    }));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Sides {
  readonly ours: () => Promise<void>;
  readonly reference: () => Promise<void>;
}

async function compared(
  { id, what }: { readonly id: string; readonly what: string },
  sides: (lease: WorkerLease, ssh: Ssh) => Promise<Sides>,
): Promise<Row> {
  // The times of a real network: a busy machine is silent for long.
  const plane = await startPlane({ liveness: LIVENESS });
  const worker = startWorkerProcess(plane.port, { program: [cprgPath()] });
  using ssh = await startSsh();
  try {
    const link = await plane.registry.claim({ taskId: "bench", epoch: 1 });
    const { ours, reference } = await sides(new WorkerLease(link, {}), ssh);
    const samples = await sampleInTurn(
      {
        ours: async () => await timed(ours),
        reference: async () => await timed(reference),
      },
      SAMPLES,
    );
    await link.release();
    return toRow({ id, what, unit: "ms", bar: { sign: ">=", value: 1 } }, samples);
  } finally {
    await worker.end();
    await plane.close();
  }
}

function check(bytes: number): void {
  if (bytes !== BYTES) throw new Error(`${bytes} bytes came`);
}
