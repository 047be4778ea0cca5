// What ordinary Bun programs do. Prints one line for each thing that worked.

import { Database } from "bun:sqlite";
import { strict as assert } from "node:assert";
import { mkdtempSync, rmSync, watch } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { $ } from "bun";

declare const self: Worker;

/** Long enough for every tier of the just-in-time compiler. */
function hot(count: number): number {
  let total = 0;
  for (let i = 0; i < count; i++) total = (total + i * i) % 1_000_003;
  return total;
}

const steps: Record<string, (directory: string) => Promise<void>> = {
  async compiler() {
    assert.equal(hot(20_000_000), hot(20_000_000));
    assert.equal("aaab".replace(/(a+)b$/, "$1"), "aaa");
    await WebAssembly.instantiate(Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0]));
  },
  async workers() {
    const worker = new Worker(import.meta.path);
    const answer = new Promise((resolve) => worker.addEventListener("message", resolve));
    worker.postMessage(1_000_000);
    assert.equal(((await answer) as MessageEvent).data, hot(1_000_000));
    worker.terminate();
  },
  async files(directory) {
    const watcher = watch(directory);
    const changed = new Promise((resolve) => watcher.once("change", resolve));
    await Bun.write(join(directory, "file"), "x".repeat(100_000));
    await changed;
    watcher.close();
    await Bun.write(join(directory, "copy"), Bun.file(join(directory, "file")));
    assert.equal(Bun.file(join(directory, "copy")).size, 100_000);
    const database = new Database(join(directory, "db"));
    database.run("create table t (n)");
    database.run("insert into t values (7)");
    assert.deepEqual(database.query("select n from t").all(), [{ n: 7 }]);
    database.close();
  },
  async programs() {
    assert.equal(Bun.spawnSync(["sh", "-c", "exit 6"]).exitCode, 6);
    const child = Bun.spawn(["cat"], { stdin: "pipe" });
    child.stdin.write("through");
    child.stdin.end();
    assert.equal(await new Response(child.stdout).text(), "through");
    assert.equal(await $`echo shell`.text(), "shell\n");
  },
  async sockets(directory) {
    const unix = join(directory, "socket");
    const server = Bun.serve({ unix, fetch: () => new Response("pong") });
    assert.equal(await (await fetch("http://unix/", { unix })).text(), "pong");
    await server.stop(true);
  },
};

async function main(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), "cprg-bun-"));
  for (const [name, step] of Object.entries(steps)) {
    await step(directory);
    console.log(name);
  }
  rmSync(directory, { recursive: true });
}

if (Bun.isMainThread) await main();
else self.onmessage = ({ data }) => self.postMessage(hot(data));
