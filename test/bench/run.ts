// `make bench`: every row, or those that are named, side by side in one run.
//
//     bun test/bench/run.ts [ID...]
//
// Ends with 1 when a row misses its bar. Raw samples go to results/latest.json.

import { mkdirSync } from "node:fs";
import { cpus, loadavg, release } from "node:os";
import { join } from "node:path";
import { buildFloor } from "./floor.ts";
import { percentile, type Row } from "./row.ts";
import { bridgeMbps, bridgeRtt } from "./rows/bridge.ts";
import { cancel } from "./rows/cancel.ts";
import { eventAppend } from "./rows/event-append.ts";
import { execBwrap } from "./rows/exec-bwrap.ts";
import { execCold } from "./rows/exec-cold.ts";
import { execPooled } from "./rows/exec-pooled.ts";
import { idleWorkers } from "./rows/idle-workers.ts";
import { loopBlock } from "./rows/loop-block.ts";
import { pythonCold } from "./rows/python-cold.ts";
import { pythonWarm } from "./rows/python-warm.ts";
import { timeoutAccuracy } from "./rows/timeout-accuracy.ts";
import { workerReady } from "./rows/worker-ready.ts";
import { execStream, fileTransfer } from "./rows/worker-streams.ts";

/** What a row is given. */
export interface BenchContext {
  /** Path of the compiled floor.c. */
  readonly floorPath: string;
}

const rows: Readonly<Record<string, (context: BenchContext) => Promise<Row>>> = {
  "exec-cold": execCold,
  "exec-pooled": execPooled,
  "exec-bwrap": execBwrap,
  "python-cold": pythonCold,
  "python-warm": pythonWarm,
  "timeout-accuracy": timeoutAccuracy,
  cancel,
  "event-append": eventAppend,
  "loop-block": loopBlock,
  "bridge-rtt": bridgeRtt,
  "bridge-mbps": bridgeMbps,
  "exec-stream": execStream,
  "file-transfer": fileTransfer,
  "idle-workers": idleWorkers,
  "worker-ready": workerReady,
};

const asked = process.argv.slice(2);
const unknown = asked.find((id) => !Object.hasOwn(rows, id));
if (unknown !== undefined) {
  console.error(`bench: no row "${unknown}"; rows: ${Object.keys(rows).join(", ")}`);
  process.exit(2);
}

process.exit(await main());

async function main(): Promise<number> {
  using floor = buildFloor();
  const done: Row[] = [];
  for (const [id, measure] of Object.entries(rows)) {
    if (asked.length > 0 && !asked.includes(id)) continue;
    console.log(`bench: ${id} …`);
    done.push(await measure({ floorPath: floor.path }));
  }
  printTable(done);
  await keep(done);
  const missed = done.filter(({ pass }) => !pass).map(({ id }) => id);
  const verdict = missed.length === 0 ? "every bar is met" : `missed: ${missed.join(", ")}`;
  console.log(`bench: ${verdict}`);
  return missed.length === 0 ? 0 : 1;
}

function printTable(measured: readonly Row[]): void {
  const header = ["row", "ours", "reference", "ratio", "bar", "", "p99 ours", "compared"];
  const lines = measured.map((row) => [
    row.id,
    `${row.ours.toFixed(2)} ${row.unit}`,
    `${row.reference.toFixed(2)} ${row.unit}`,
    row.ratio.toFixed(2),
    row.bar,
    row.pass ? "pass" : "MISS",
    percentile(row.samples.ours, 99).toFixed(2),
    row.what,
  ]);
  const widths = header.map((title, column) =>
    Math.max(title.length, ...lines.map((line) => line[column]?.length ?? 0)),
  );
  for (const line of [header, ...lines]) {
    console.log(
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    );
  }
}

/** Kept only when every row was measured: a part is no picture of the whole. */
async function keep(measured: readonly Row[]): Promise<void> {
  if (asked.length > 0) return;
  const folder = join(import.meta.dir, "results");
  mkdirSync(folder, { recursive: true });
  const path = join(folder, "latest.json");
  await Bun.write(path, `${JSON.stringify(measured, null, 1)}\n`);
  const machine = `${cpus().length} cores, Linux ${release()}, load ${loadavg()[0]?.toFixed(1)}`;
  console.log(`bench: kept in test/bench/results/latest.json (${machine})`);
}
