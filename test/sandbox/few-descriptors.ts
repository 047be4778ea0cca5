// Opens sandboxes until the process is out of descriptors; prints what happened. A child of
// setup-failure.test.ts, which lowers the limit.

import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { DEFAULT_LIMITS } from "../../src/core/limits.ts";
import type { ExecLease } from "../../src/provider/contract.ts";
import { openLocalEngine } from "../../src/sandbox/engine.ts";

const [runDir = "", dataDir = "", base = "0"] = process.argv.slice(2);
const engine = await openLocalEngine({
  runDir,
  dataDir,
  mode: "auto",
  idRange: { base: Number(base), count: 100 },
});
const first = await engine.open(await engine.reserve(DEFAULT_LIMITS));
await first.release();
const count = (): number => readdirSync("/proc/self/fd").length;
const before = count();
const leases: ExecLease[] = [];
let error = "";
while (error === "" && leases.length < 50) {
  try {
    leases.push(await engine.open(await engine.reserve(DEFAULT_LIMITS)));
  } catch (thrown) {
    error = String(thrown);
  }
}
await Promise.all(leases.map((lease) => lease.release()));
// The runtime closes its own duplicates in a later turn.
for (let turn = 0; turn < 500 && count() > before; turn += 1) await sleep(5);
// Fewer than before is the runtime's doing too, and nothing that was left.
const left = Math.max(0, count() - before);
const { instance } = engine;
await engine.close();
console.log(JSON.stringify({ opened: leases.length, error, left, instance }));
