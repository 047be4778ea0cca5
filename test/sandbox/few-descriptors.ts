// Runs a sandbox's operations with ever more descriptors left, from none on; prints what each said. A
// child of setup-failure.test.ts, which lowers the limit.

import { closeSync, openSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../../src/core/errors.ts";
import { DEFAULT_LIMITS } from "../../src/core/limits.ts";
import { openLocalEngine } from "../../src/sandbox/engine.ts";

/** More than any operation needs. */
const FREE_MOST = 24;
const SINK = { entry: async () => undefined, content: async () => undefined };
const ECHO = { executable: "/bin/echo", arguments: ["hi"] };

const [runDir = "", dataDir = "", base = "0"] = process.argv.slice(2);
const engine = await openLocalEngine({
  runDir,
  dataDir,
  mode: "auto",
  idRange: { base: Number(base), count: 100 },
});
const open = async () => await engine.open(await engine.reserve(DEFAULT_LIMITS));
const lease = await open();
const operations: Readonly<Record<string, () => Promise<unknown>>> = {
  open: async () => await (await open()).release(),
  exec: async () => await lease.invoke(ECHO),
  terminal: async () => {
    const exec = await lease.exec({
      ...ECHO,
      variables: {},
      terminal: { columns: 80, rows: 24 },
    });
    for await (const _ of exec.notices);
    await exec.outcome;
  },
  put: async () => await lease.putFile("/workspace/a", new Uint8Array(1)),
  take: async () => await lease.takeEntries("/workspace", SINK),
};
// What stays for the life of the process.
for (const operate of Object.values(operations)) await operate();

const count = (): number => readdirSync("/proc/self/fd").length;
const before = count();
const said: Record<string, string[]> = {};
for (const [name, operate] of Object.entries(operations)) {
  said[name] = [];
  for (let free = 0; free <= FREE_MOST; free += 1) said[name].push(await attempt(operate, free));
}
// The runtime closes its own duplicates in a later turn.
for (let turn = 0; turn < 500 && count() > before; turn += 1) await sleep(5);
// Fewer than before is the runtime's doing too, and nothing that was left.
const left = Math.max(0, count() - before);
await lease.release();
const { instance } = engine;
await engine.close();
console.log(JSON.stringify({ said, left, instance }));

/** `ok`, or the step and the fix of its error. */
async function attempt(operate: () => Promise<unknown>, free: number): Promise<string> {
  const taken: number[] = [];
  try {
    for (;;) taken.push(openSync("/dev/null", "r"));
  } catch {
    // All are in use.
  }
  for (const fd of taken.splice(0, free)) closeSync(fd);
  try {
    await operate();
    return "ok";
  } catch (error) {
    return CprgError.is(error) ? `${error.message}: ${error.hint}` : `no CprgError: ${error}`;
  } finally {
    for (const fd of taken) closeSync(fd);
  }
}
