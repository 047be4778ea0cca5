// DELETE of a running job with ten children, until it is proven that nothing is left, against
// SIGKILL and wait of the same tree outside. The server is the compiled binary.

import { makeHome } from "../../e2e/cprg.ts";
import { type Serving, serve } from "../../e2e/server.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";

const SAMPLES = 30;

/** Ignores nothing and has ten children, which say when they are there. */
const TREE = `import os, sys, time
for n in range(10):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print("ready", flush=True)
time.sleep(60)
`;

export async function cancel(): Promise<Row> {
  using home = makeHome();
  await using server = await serve(home, { env: { CPRG_LOG: "error" } });
  const samples = await sampleInTurn(
    { ours: async () => await cancelJob(server), reference: killTree },
    SAMPLES,
  );
  const what = "DELETE of a job with ten children, to its terminal answer / SIGKILL and wait of it";
  return toRow({ id: "cancel", what, unit: "ms", bar: { sign: "<=", value: 5 } }, samples);
}

async function cancelJob(server: Serving): Promise<number> {
  const body = { language: "python", code: TREE, kill_grace_seconds: 0 };
  const id = await server.submit(body);
  await untilReady(server, id);
  return await timed(async () => {
    const response = await server.request(`/v1/jobs/${id}`, { method: "DELETE" });
    const job = (await response.json()) as { status: string };
    if (job.status !== "cancelled") throw new Error(JSON.stringify(job));
  });
}

async function untilReady(server: Serving, id: string): Promise<void> {
  const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/jobs/${id}/stream`, {
    headers: { Authorization: `Bearer ${server.key}` },
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.onmessage = ({ data }) => {
    if (String(data).includes('"data":"ready')) resolve();
  };
  socket.onclose = () => reject(new Error("the stream was closed"));
  await promise;
  socket.close();
}

/** The tree is a process group of its own; its pipe closes when the last of it is dead. */
async function killTree(): Promise<number> {
  const child = Bun.spawn(["/usr/bin/python3", "-c", TREE], { stdout: "pipe", detached: true });
  const reader = child.stdout.getReader();
  await reader.read();
  return await timed(async () => {
    process.kill(-child.pid, "SIGKILL");
    await child.exited;
    while (!(await reader.read()).done) {}
  });
}
