// Node's worker threads on shared memory, its child processes, and watched directories. Prints a
// line for each thing that worked.

const assert = require("node:assert");
const { spawn, fork } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const path = require("node:path");
const { Worker, isMainThread, workerData, MessageChannel } = require("node:worker_threads");

async function workers() {
  const shared = new Int32Array(new SharedArrayBuffer(8));
  const threads = Array.from({ length: 4 }, () => new Worker(__filename, { workerData: shared }));
  await Promise.all(threads.map((thread) => once(thread, "exit")));
  assert.equal(shared[0], 40_000);
  const { port1, port2 } = new MessageChannel();
  port1.postMessage({ big: new Uint8Array(1 << 20) });
  const [message] = await once(port2, "message");
  assert.equal(message.big.length, 1 << 20);
  port1.close();
}

async function children() {
  const cat = spawn("cat", { stdio: ["pipe", "pipe", "inherit"] });
  cat.stdin.end("x".repeat(500_000));
  let length = 0;
  for await (const chunk of cat.stdout) length += chunk.length;
  assert.equal(length, 500_000);
  const other = fork(__filename, ["child"], { serialization: "advanced" });
  other.send(new Map([["a", 1]]));
  assert.deepEqual((await once(other, "message"))[0], new Set([1]));
  other.disconnect();
  assert.equal((await once(other, "exit"))[0], 0);
  const slow = spawn("sleep", ["300"], { detached: true, stdio: "ignore" });
  process.kill(-slow.pid, "SIGKILL");
  assert.equal((await once(slow, "exit"))[1], "SIGKILL");
}

/** A watcher may start later than it says: what it watches changes until it has noticed. */
async function writeUntil(noticed) {
  while (!noticed()) {
    fs.appendFileSync(path.join("watched", "file"), "more");
    await new Promise((go) => setTimeout(go, 20));
  }
}

async function watching() {
  fs.mkdirSync("watched/deep", { recursive: true });
  const seen = new Set();
  const watcher = fs.watch("watched", { recursive: true }, (_, name) => seen.add(name));
  await writeUntil(() => seen.has("file"));
  watcher.close();
  let polled = false;
  fs.watchFile("watched/file", { interval: 10 }, () => {
    polled = true;
  });
  await writeUntil(() => polled);
  fs.unwatchFile("watched/file");
}

async function main() {
  for (const step of [workers, children, watching]) {
    await step();
    console.log(step.name);
  }
}

if (!isMainThread) {
  for (let i = 0; i < 10_000; i++) Atomics.add(workerData, 0, 1);
} else if (process.argv[2] === "child") {
  process.once("message", (map) => process.send(new Set(map.values())));
} else {
  main().catch((error) => {
    console.error(error);
    process.exit(1);
  });
}
