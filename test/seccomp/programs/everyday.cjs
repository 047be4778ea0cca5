// What ordinary Node programs do. Prints one line for each thing that worked.

const assert = require("node:assert");
const { execFile, fork, spawnSync } = require("node:child_process");
const crypto = require("node:crypto");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { promisify } = require("node:util");
const { Worker, isMainThread, parentPort } = require("node:worker_threads");
const zlib = require("node:zlib");

const isChild = process.argv[2] === "child";
const directory =
  isMainThread && !isChild ? fs.mkdtempSync(path.join(os.tmpdir(), "cprg-node-")) : "";

function sum(count) {
  let total = 0;
  for (let i = 0; i < count; i++) total += i % 7;
  return total;
}

const steps = {
  async workers() {
    const results = [1e6, 2e6].map(
      (count) =>
        new Promise((resolve, reject) => {
          const worker = new Worker(__filename);
          worker.once("message", resolve).once("error", reject);
          worker.postMessage(count);
        }),
    );
    assert.deepEqual(await Promise.all(results), [sum(1e6), sum(2e6)]);
  },
  async files() {
    const file = path.join(directory, "file");
    const watcher = fs.watch(directory);
    const changed = new Promise((resolve) => watcher.once("change", resolve));
    await fs.promises.writeFile(file, "x".repeat(100_000));
    await changed;
    watcher.close();
    await fs.promises.copyFile(file, `${file}2`);
    assert.equal((await fs.promises.stat(`${file}2`)).size, 100_000);
    const stream = fs.createReadStream(file).pipe(zlib.createGzip());
    let packed = 0;
    for await (const chunk of stream) packed += chunk.length;
    assert.ok(packed > 0 && packed < 1000);
  },
  async programs() {
    const { stdout } = await promisify(execFile)("echo", ["hi"]);
    assert.equal(stdout, "hi\n");
    assert.equal(spawnSync("sh", ["-c", "exit 5"]).status, 5);
    const child = fork(__filename, ["child"]);
    assert.equal(await new Promise((resolve) => child.once("message", resolve)), "from the child");
  },
  async sockets() {
    const server = net.createServer((socket) => socket.end("pong")).listen(`${directory}/socket`);
    await new Promise((resolve) => server.once("listening", resolve));
    let text = "";
    for await (const chunk of net.connect(`${directory}/socket`)) text += chunk;
    server.close();
    assert.equal(text, "pong");
    const refused = new Promise((resolve) => net.connect(9, "127.0.0.1").once("error", resolve));
    assert.equal((await refused).code, "EAFNOSUPPORT");
  },
  async threadpool() {
    const derive = promisify(crypto.scrypt);
    assert.equal((await Promise.all([derive("a", "b", 32), derive("a", "b", 32)])).length, 2);
    const bytes = Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0]);
    await WebAssembly.instantiate(bytes);
    process.kill(process.pid, 0);
    os.setPriority(os.getPriority());
    assert.ok(os.cpus().length >= 0 && os.totalmem() > 0);
  },
};

async function main() {
  for (const [name, step] of Object.entries(steps)) {
    await step();
    console.log(name);
  }
  fs.rmSync(directory, { recursive: true });
  process.exit(0);
}

if (!isMainThread) parentPort.once("message", (count) => parentPort.postMessage(sum(count)));
else if (isChild) process.send("from the child");
else
  main().catch((error) => {
    console.error(error);
    process.exit(1);
  });
