/**
 * Run in a process of its own: `keep MASK` reduces its main thread and prints what the kernel then
 * says of it; `restart MASK` also starts itself anew, and prints what that one has.
 */
import { ptr } from "bun:ffi";
import { openSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { native } from "./native.ts";

const SETS = /^(Cap\w+|NoNewPrivs):\s+(\w+)$/gm;

function sets(path: string): string {
  return [...readFileSync(path, "utf8").matchAll(SETS)].map((line) => line.slice(1)).join(" ");
}

function print(report: Readonly<Record<string, unknown>>): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

function restart(): number {
  const fd = openSync("/etc/passwd", "r");
  const args = readFileSync("/proc/self/cmdline");
  const variables = Buffer.concat([
    readFileSync("/proc/self/environ"),
    Buffer.from(`FIRST=${process.pid}\0FD=${fd}\0`),
  ]);
  const fds = Int32Array.of(fd);
  return native.cprg_restart(ptr(args), args.length, ptr(variables), variables.length, ptr(fds), 1);
}

const [word, mask = "0"] = process.argv.slice(2);
if (process.env["FIRST"] === undefined) {
  const result = native.cprg_reduce(BigInt(mask));
  if (word === "restart") restart();
  const threads = readdirSync("/proc/self/task").map((id) => sets(`/proc/self/task/${id}/status`));
  print({ result, self: sets("/proc/self/status"), threads });
} else {
  print({
    isSamePid: process.env["FIRST"] === String(process.pid),
    words: process.argv.slice(2),
    file: readlinkSync(`/proc/self/fd/${process.env["FD"]}`),
    threads: readdirSync("/proc/self/task").map((id) => sets(`/proc/self/task/${id}/status`)),
  });
}
