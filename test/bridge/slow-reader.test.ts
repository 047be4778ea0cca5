// A reader that is slow holds back its own call: not the others, and no memory on either side.

import { expect, test } from "bun:test";
import type { Mux } from "../../src/bridge/contract.ts";
import { CREDIT, EXEC_START, FS_STAT } from "../../src/bridge/methods.ts";
import { startControl, startWorker } from "./control.ts";

const MIB = 1024 * 1024;
/** More than the bounds of every buffer on the way together; `make test-long` sends 1 GiB. */
const STREAM_MIB = Number(process.env["CPRG_SLOW_READER_MIB"] ?? 96);
const CHUNKS_PER_MIB = 16;

async function workerBytes(mux: Mux): Promise<number> {
  return (await mux.call(FS_STAT, {})).stat?.size ?? 0;
}

async function readAll(mux: Mux, mib: number): Promise<number> {
  let bytes = 0;
  const argv = [`${mib * CHUNKS_PER_MIB}`];
  for await (const { stdout } of mux.stream(EXEC_START, { argv })) bytes += stdout?.length ?? 0;
  return bytes;
}

test.each([
  ["with credit", [CREDIT.name]],
  ["of a plain peer", []],
])("a slow reader %s", async (_, lists) => {
  const control = await startControl();
  const worker = startWorker({ port: control.port, lists });
  try {
    const mux = await control.next();
    // Warm: buffers and heaps of both runtimes have the size that a fast stream gives them.
    await readAll(mux, 48);
    const before = { ours: process.memoryUsage.rss(), theirs: await workerBytes(mux) };
    const grown = { ours: 0, theirs: 0 };
    const measure = async (): Promise<void> => {
      grown.ours = Math.max(grown.ours, process.memoryUsage.rss() - before.ours);
      if (lists.length > 0)
        grown.theirs = Math.max(grown.theirs, (await workerBytes(mux)) - before.theirs);
    };
    let chunks = 0;
    const argv = [`${STREAM_MIB * CHUNKS_PER_MIB}`];
    for await (const { seq } of mux.stream(EXEC_START, { argv })) {
      chunks += 1;
      expect(seq).toBe(chunks);
      // Slow at first: other calls come in between; a plain peer's share the stream with it.
      if (chunks <= 200) for (let call = 0; call < 5; call += 1) await measure();
      else if (chunks % 256 === 0) await measure();
    }
    expect(chunks).toBe(STREAM_MIB * CHUNKS_PER_MIB);
    console.log(`grew by ${grown.ours / MIB} and ${grown.theirs / MIB} MiB`);
    expect(grown.ours).toBeLessThan(32 * MIB);
    expect(grown.theirs).toBeLessThan(32 * MIB);
    mux.close();
  } finally {
    worker.kill("SIGKILL");
    await worker.exited;
    await control.close();
  }
});
