/**
 * Prints how long a launch and an exec take: `bun test/ffi/latency.ts [rounds]`. Not a test: speed
 * has no place in assertions. Every figure is in microseconds.
 */
import { closeSync } from "node:fs";
import { nullFd, removeTemporaryDirectories } from "./native.ts";
import { Sandbox } from "./sandbox.ts";
import { reportType } from "./wire.ts";

const rounds = Number(process.argv[2] ?? 200);
const samples = new Map<string, number[]>();
const now = (): number => Bun.nanoseconds() / 1000;

function note(name: string, us: number): void {
  const list = samples.get(name) ?? [];
  list.push(us);
  samples.set(name, list);
}

function execTrue(sandbox: Sandbox, out: number): void {
  const id = sandbox.newId();
  sandbox.send({ type: "exec", id, argv: ["/bin/true"], path: "/workspace", nullStdin: true }, [
    out,
    out,
  ]);
  if (sandbox.next().type !== reportType.started || sandbox.next().type !== reportType.exited) {
    throw new Error("/bin/true did not run");
  }
}

const out = nullFd();
for (let round = -20; round < rounds; round++) {
  const begin = now();
  const sandbox = Sandbox.open();
  const ready = now();
  execTrue(sandbox, out);
  const exited = now();
  const again = now();
  execTrue(sandbox, out);
  const pooled = now();
  sandbox[Symbol.dispose]();
  const gone = now();
  const bare = now();
  Bun.spawnSync(["/bin/true"]);
  const bareEnd = now();
  if (round >= 0) {
    note("cprg_launch call", sandbox.launchNs / 1000);
    note("launch to READY", ready - begin);
    note("EXEC to EXITED", exited - ready);
    note("launch to EXITED", exited - begin);
    note("EXEC to EXITED, second", pooled - again);
    note("kill and reap", gone - pooled);
    note("Bun.spawnSync of the same", bareEnd - bare);
  }
}
closeSync(out);

for (const [name, list] of samples) {
  list.sort((a, b) => a - b);
  const at = (share: number): string =>
    (list[Math.floor(list.length * share)] ?? 0).toFixed(0).padStart(7);
  process.stdout.write(`${name.padEnd(28)} p50${at(0.5)}  p90${at(0.9)}  p99${at(0.99)}\n`);
}
removeTemporaryDirectories();
