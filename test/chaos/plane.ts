// A control plane as a process of its own, with its database: `bun plane.ts DIRECTORY PORT`. Takes a
// JSON request a line on standard input and answers each with one on standard output, in any order.

import { join } from "node:path";
import type { Runner } from "../../src/control-plane/contract.ts";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import { openStore } from "../../src/store/open.ts";
import { LIVENESS, TOKEN } from "./times.ts";

const UPLOAD_BYTES = 2 * 1024 * 1024;

/** A program, a file, a program that reads the file: what a task of this test is. */
const runner: Runner = async (input, { lease, task, signal }) => {
  const { witness } = input as { witness: string };
  const run = async (command: string): Promise<string> => {
    const { status, stdout, stderr } = await lease.invoke({
      executable: "/bin/sh",
      arguments: ["-c", command, "sh", task.id, witness],
      signal,
    });
    if (status !== 0) throw new Error(`exit code ${status}: ${stderr}`);
    return stdout.trim();
  };
  // What it leaves must not outlive it, and nothing of it its claim.
  await run('echo "$1 began" >> "$2"; setsid sleep 301.$$ & sleep 0.2; : chaos-$1');
  await lease.upload(source, join(lease.root, "file"), { signal });
  const sum = await run('sleep 0.2; cksum < file; echo "$1 ended" >> "$2"; : chaos-$1');
  return { sum };
};

const [directory = "", port = "0"] = process.argv.slice(2);
const source = join(directory, "source");
await Bun.write(source, new Uint8Array(UPLOAD_BYTES).fill(7));
const plane = await ControlPlane.create({
  token: TOKEN,
  storeFactory: () => openStore({ path: join(directory, "plane.db") }),
  dataDirectory: directory,
  liveness: LIVENESS,
  stopGraceMs: 0,
});
plane.setRunner(runner);
const address = await plane.serve({ port: Number(port) });
say({ port: address.port });

for await (const line of console) {
  // Whoever asked was killed in the middle of it.
  if (!line.endsWith("}")) continue;
  const { call, id, witness } = JSON.parse(line) as Record<string, string>;
  const answer = (fields: object): void => say({ call, ...fields });
  if (id !== undefined && witness !== undefined) {
    plane.submit({ witness }, { id }).then(
      ({ id: task }) => answer({ task }),
      (error: unknown) => answer({ error: String(error) }),
    );
  } else if (id !== undefined) {
    plane.waitTask(id).then(
      ({ status, reason, attempts, error }) => answer({ status, reason, attempts, why: error }),
      (error: unknown) => answer({ error: String(error) }),
    );
  } else {
    answer({ rss: process.memoryUsage.rss() });
  }
}
await plane.stop();

function say(fields: object): void {
  process.stdout.write(`${JSON.stringify(fields)}\n`);
}
