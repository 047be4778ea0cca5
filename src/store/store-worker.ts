/** The Worker that owns the database. It does one batch at a time and never waits for anything. */

import { GarbageCount } from "../core/garbage.ts";
import { BatchRunner } from "./batch.ts";
import { type OpenDatabase, openDatabase } from "./database.ts";
import type { FromWorker, ToWorker } from "./protocol.ts";
import { SpaceReserve } from "./space-reserve.ts";
import { toWire } from "./wire-error.ts";

declare const self: Worker;

let database: OpenDatabase | undefined;
let runner: BatchRunner | undefined;
const garbage = new GarbageCount({ everyBytes: 1024 * 1024, isAwaited: true });

self.onmessage = ({ data: message }: MessageEvent<ToWorker>): void => {
  self.postMessage(answer(message));
  if (message.type !== "batch") return;
  garbage.add(message.inputBytes);
};

function answer(message: ToWorker): FromWorker {
  switch (message.type) {
    case "open":
      return open(message.path);
    case "batch":
      if (runner === undefined) throw new Error("BUG(cprg): a batch before the store is open");
      return { type: "results", results: runner.run(message.requests) };
    case "close":
      database?.close();
      return { type: "closed" };
  }
}

function open(path: string): FromWorker {
  try {
    database = openDatabase(path);
    const reserve = new SpaceReserve(`${database.path}-reserve`);
    reserve.hold();
    runner = new BatchRunner(database.db, reserve);
    return { type: "opened" };
  } catch (error) {
    return { type: "refused", error: toWire(error) };
  }
}
