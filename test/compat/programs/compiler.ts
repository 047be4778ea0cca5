// Bun's just-in-time compiler over a long hot loop, workers on shared memory, its database. Prints a
// line for each thing that worked.

import { Database } from "bun:sqlite";
import { strict as assert } from "node:assert";
import { once } from "node:events";
import { Worker } from "node:worker_threads";

/** Changes what it meets half-way, so that compiled code has to be thrown away. */
function mixed(count: number): number {
  let total = 0;
  const shapes: { value: number; more?: string }[] = [{ value: 1 }, { value: 2.5, more: "x" }];
  for (let i = 0; i < count; i++) {
    const shape = shapes[i & 1] as { value: number; more?: string };
    total += i < count / 2 ? i % 3 : shape.value;
    if (shape.more !== undefined && (i & 0xfffff) === 1) shape.more += "y";
  }
  return total;
}

function sieve(limit: number): number {
  const composite = new Uint8Array(limit + 1);
  let primes = 0;
  for (let i = 2; i <= limit; i++) {
    if (composite[i] === 1) continue;
    primes += 1;
    for (let j = i * i; j <= limit; j += i) composite[j] = 1;
  }
  return primes;
}

const steps: Record<string, () => void | Promise<void>> = {
  loop() {
    assert.equal(mixed(5_000_000), mixed(5_000_000));
    assert.equal(sieve(5_000_000), 348_513);
    assert.equal(new Function("a", "return a + 1")(41), 42);
  },
  garbage() {
    let kept: Uint8Array[] = [];
    for (let i = 0; i < 2000; i++) {
      kept.push(new Uint8Array(64 * 1024).fill(i));
      if (kept.length > 100) kept = kept.slice(50);
    }
    Bun.gc(true);
    assert.equal(kept.at(-1)?.[7], 1999 & 0xff);
  },
  async workers() {
    const shared = new SharedArrayBuffer(8);
    const code = `
      const { workerData } = require("node:worker_threads");
      const cells = new Int32Array(workerData);
      for (let i = 0; i < 10000; i++) Atomics.add(cells, 0, 1);`;
    const workers = [1, 2, 3].map(() => new Worker(code, { eval: true, workerData: shared }));
    await Promise.all(workers.map((worker) => once(worker, "exit")));
    assert.equal(new Int32Array(shared)[0], 30_000);
  },
  database() {
    const base = new Database("base");
    base.run("pragma journal_mode = wal");
    base.run("create table t (n integer primary key, text)");
    const insert = base.prepare("insert into t (text) values (?)");
    base.transaction(() => {
      for (let i = 0; i < 10_000; i++) insert.run(`row ${i}`);
    })();
    assert.deepEqual(base.query("select count(*) as n from t where text like '%9'").get(), {
      n: 1000,
    });
    base.close();
  },
};

for (const [name, step] of Object.entries(steps)) {
  await step();
  console.log(name);
}
