// A program that floods its output, followed by a reader that is slow: neither the worker nor the control
// plane grows, and other programs of the claim are served as if it were not there.

import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { EXEC_START } from "../../src/bridge/methods.ts";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import { cprgPath } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";
import { startPlane, startWorkerProcess } from "./process.ts";

const MIB = 1024 * 1024;
/** Beyond every buffer on the way together; `make test-bridge-long` sends 1 GiB. */
const FLOOD_MIB = Number(process.env["CPRG_SLOW_READER_MIB"] ?? 128);
const WARM_MIB = 96;
const GROWTH_BYTES_MAX = 32 * MIB;
const SLOWER_MAX = 10;
const TRIPS = 15;

function rssOf(pid: number): number {
  const [, kib = "0"] =
    /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kib) * 1024;
}

const flood = (link: ClaimLink, mib: number) =>
  link.mux.stream(EXEC_START, {
    claim: link.claim,
    argv: ["head", "-c", `${mib * MIB}`, "/dev/zero"],
  });

/** Milliseconds from the start of a program to its exit. */
async function roundTrip(link: ClaimLink): Promise<number> {
  const begin = performance.now();
  const request = { claim: link.claim, argv: ["/bin/true"] };
  for await (const _ of link.mux.stream(EXEC_START, request));
  return performance.now() - begin;
}

async function median(times: number, sample: () => Promise<number>): Promise<number> {
  const samples: number[] = [];
  for (let count = 0; count < times; count += 1) samples.push(await sample());
  return samples.sort((left, right) => left - right)[Math.floor(times / 2)] ?? Number.NaN;
}

requireHost({ linux: true }).test(
  `${FLOOD_MIB} MiB that are read slowly hold nobody else back, and no memory`,
  async () => {
    const plane = await startPlane();
    const worker = startWorkerProcess(plane.port, { program: [cprgPath()] });
    try {
      const link = await plane.registry.claim({ taskId: "t1", epoch: 1 });
      // Warm: heaps have the size that a fast stream gives them.
      for await (const _ of flood(link, WARM_MIB));
      const idleMs = await median(TRIPS, () => roundTrip(link));
      const before = { ours: process.memoryUsage.rss(), theirs: rssOf(worker.pid) };
      const grown = { ours: 0, theirs: 0 };
      const measure = (): void => {
        grown.ours = Math.max(grown.ours, process.memoryUsage.rss() - before.ours);
        grown.theirs = Math.max(grown.theirs, rssOf(worker.pid) - before.theirs);
      };
      let [bytes, items, busyMs] = [0, 0, 0];
      for await (const { stdout } of flood(link, FLOOD_MIB)) {
        bytes += stdout?.length ?? 0;
        items += 1;
        // It holds an item while other programs run: what it has not taken waits at the worker.
        if (items === 4) busyMs = await median(TRIPS, () => roundTrip(link));
        if (items % 64 === 0) measure();
      }
      expect(bytes).toBe(FLOOD_MIB * MIB);
      const grew = [grown.ours, grown.theirs].map((each) => (each / MIB).toFixed(1));
      console.log(
        `grew by ${grew.join(" and ")} MiB; true: ${idleMs.toFixed(1)} ms, ${busyMs.toFixed(1)} ms beside it`,
      );
      expect(grown.ours).toBeLessThan(GROWTH_BYTES_MAX);
      expect(grown.theirs).toBeLessThan(GROWTH_BYTES_MAX);
      expect(busyMs).toBeLessThan(idleMs * SLOWER_MAX);
      await link.release();
    } finally {
      await worker.end();
      await plane.close();
    }
  },
  900_000,
);
