// The bridge between two processes against grpc-js between two others, with the same messages: a unary
// call and its answer, and items of 64 KiB one way.

import type { Mux } from "../../../src/bridge/contract.ts";
import { EXEC_START, FS_STAT } from "../../../src/bridge/methods.ts";
import { startControl, startWorker } from "../../bridge/control.ts";
import { startGrpcJs } from "../grpc-js.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";

const SAMPLES = 30;
const TRIPS = 200;
const CHUNKS = 256;
const CHUNK_BYTES = 64 * 1024;

/** Calls `FS_STAT` and waits for the answer, again and again. */
export async function bridgeRtt(): Promise<Row> {
  const what = `${TRIPS} unary calls, one after another / the same through grpc-js on Node`;
  return await compared({ id: "bridge-rtt", what, bar: 1.5 }, "rtt", TRIPS, async (mux) => {
    for (let trip = 0; trip < TRIPS; trip += 1) await mux.call(FS_STAT, {});
  });
}

/** Follows a stream of items. */
export async function bridgeMbps(): Promise<Row> {
  const what = `${CHUNKS} items of 64 KiB one way / the same through grpc-js on Node`;
  return await compared({ id: "bridge-mbps", what, bar: 2 }, "flow", CHUNKS, async (mux) => {
    let bytes = 0;
    for await (const { stdout } of mux.stream(EXEC_START, { argv: [`${CHUNKS}`] })) {
      bytes += stdout?.length ?? 0;
    }
    if (bytes !== CHUNKS * CHUNK_BYTES) throw new Error(`${bytes} bytes came`);
  });
}

async function compared(
  { id, what, bar }: { readonly id: string; readonly what: string; readonly bar: number },
  sample: "rtt" | "flow",
  count: number,
  work: (mux: Mux) => Promise<void>,
): Promise<Row> {
  const control = await startControl();
  const worker = startWorker({ port: control.port });
  using reference = await startGrpcJs();
  try {
    const mux = await control.next();
    const samples = await sampleInTurn(
      {
        ours: async () => await timed(() => work(mux)),
        reference: () => reference.sample(sample, count),
      },
      SAMPLES,
    );
    mux.close();
    return toRow({ id, what, unit: "ms", bar: { sign: ">=", value: bar } }, samples);
  } finally {
    worker.kill("SIGKILL");
    await worker.exited;
    await control.close();
  }
}
