/** Runs modules on both sides, two batches at a time. */

import type { ModuleReport } from "./module-report.ts";
import type { BatchTimes, Side } from "./sides.ts";

/** Batches that run at the same time: one for each CPU of a small machine. */
const PARALLEL = 2;
/** Modules of one batch: few enough for the tests' files to be gone now and then. */
const BATCH_MODULES = 10;

/** Both reports of each module. */
export interface Pair {
  readonly inside: ModuleReport;
  readonly outside: ModuleReport;
}

/** How long a run may take. */
export interface RunTimes extends BatchTimes {
  /** No further batch is started after that, in seconds. */
  readonly run: number;
}

interface Batch {
  readonly side: "inside" | "outside";
  readonly modules: readonly string[];
}

/** @throws when there is no time for all of them */
export async function runBothSides(
  modules: readonly string[],
  sides: Readonly<Record<Batch["side"], Side>>,
  times: RunTimes,
): Promise<ReadonlyMap<string, Pair>> {
  const reports = { inside: new Map<string, ModuleReport>(), outside: new Map() };
  const queue: Batch[] = chunks(modules).flatMap((part) => [
    { side: "inside", modules: part },
    { side: "outside", modules: part },
  ]);
  const deadlineMs = performance.now() + times.run * 1000;
  const work = async (): Promise<void> => {
    for (let batch = queue.shift(); batch !== undefined; batch = queue.shift()) {
      if (performance.now() > deadlineMs) {
        throw new Error(`no time for ${batch.modules.join(" ")} after ${times.run} s`);
      }
      const { side } = batch;
      const ended = await sides[side](batch.modules, times);
      if (ended.length === 0) throw new Error(`${side}: nothing ran of ${batch.modules.join(" ")}`);
      for (const report of ended) reports[side].set(report.module, report);
      const left = batch.modules.filter((module) => !reports[side].has(module));
      if (left.length > 0) queue.unshift({ side, modules: left });
    }
  };
  const workers = Array.from({ length: PARALLEL }, () =>
    work().catch((error: unknown) => {
      // The other one finishes what it has begun, and nothing of it goes on behind the caller.
      queue.length = 0;
      throw error;
    }),
  );
  const failed = (await Promise.allSettled(workers)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
  return new Map(
    modules.map((module) => [
      module,
      {
        inside: reports.inside.get(module) as ModuleReport,
        outside: reports.outside.get(module) as ModuleReport,
      },
    ]),
  );
}

function chunks(modules: readonly string[]): string[][] {
  const parts: string[][] = [];
  for (let at = 0; at < modules.length; at += BATCH_MODULES) {
    parts.push(modules.slice(at, at + BATCH_MODULES));
  }
  return parts;
}
