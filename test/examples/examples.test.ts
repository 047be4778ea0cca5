// The examples of this folder, run as their readers run them.

import { expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeHome, readText } from "../e2e/cprg.ts";
import { type Serving, serve } from "../e2e/server.ts";
import { requireHost } from "../helpers/host.ts";
import { calls, MODEL_KEY, says, startModelServer } from "../helpers/model-server.ts";
import { startWorkerProcess } from "../worker/process.ts";

/** An example as JavaScript for Node, as a bundler makes it. */
async function builtForNode(name: string, folder: string): Promise<string> {
  const entrypoints = [join(import.meta.dir, `${name}.ts`)];
  const built = await Bun.build({ entrypoints, target: "node", format: "esm", outdir: folder });
  expect(built.success).toBe(true);
  return join(folder, `${name}.js`);
}

/** Runs an example on Node with a worker for its one task; the last line that it prints. */
async function runOnNode(name: string, env: Readonly<Record<string, string>> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "cprg-embed-"));
  // Told apart from Bun, which may have put itself in the place of node.
  const version = Bun.spawnSync(["node", "-p", "process.versions.bun ?? process.versions.node"]);
  expect(Number.parseInt(version.stdout.toString(), 10)).toBeGreaterThanOrEqual(20);
  const program = Bun.spawn(["node", await builtForNode(name, folder)], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdout: "pipe",
    stderr: "pipe",
  });
  const out = readText(program.stdout);
  const said = program.stderr.text();
  try {
    const [first = ""] = (await out.until(/\n/)).split("\n");
    const { port, token } = JSON.parse(first) as { port: number; token: string };
    const worker = startWorkerProcess(port, { words: ["--token", "-", "--once"], stdin: token });
    try {
      const lines = (await out.rest()).trim().split("\n");
      expect([await program.exited, await said]).toEqual([0, ""]);
      expect(await worker.exited).toBe(0);
      return JSON.parse(lines[1] ?? "") as unknown;
    } finally {
      await worker.end();
    }
  } finally {
    program.kill("SIGKILL");
    await program.exited;
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Resolves when a worker can be claimed. */
async function untilIdle(server: Serving): Promise<void> {
  for (;;) {
    const answer = await server.request("/v1/workers");
    const { workers } = (await answer.json()) as { workers: { state: string }[] };
    if (workers.some(({ state }) => state === "idle")) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const onNode = requireHost({ programs: ["node"] });

onNode.test(
  "embed.ts on Node: a control plane inside a program, with a runner of its own",
  async () => {
    expect(await runOnNode("embed")).toEqual({
      status: "succeeded",
      result: { status: 0, greeting: "hello, world" },
      error: null,
    });
  },
);

onNode.test("embed-agent.ts on Node: a model does a task on a worker", async () => {
  await using model = startModelServer((_, index) => {
    if (index === 0) return calls("write", { path: "a.txt", content: "from node" });
    if (index === 1) return calls("read", { path: "a.txt" });
    return says("it is made");
  });
  const ended = await runOnNode("embed-agent", { MODEL_URL: model.url, MODEL_KEY });
  expect(ended).toMatchObject({ status: "succeeded", result: { text: "it is made", steps: 3 } });
  expect(JSON.stringify(model.requests[2]?.body.messages)).toContain("from node");
});

requireHost({ programs: ["python3"] }).test(
  "agent.py: an agent in Python drives a claimed worker through /v1/sandboxes",
  async () => {
    using home = makeHome();
    const words = ["--bridge-addr", "127.0.0.1:0"];
    await using server = await serve(home, { command: "control-plane", words });
    const minted = await server.request("/v1/worker-tokens", {
      method: "POST",
      body: JSON.stringify({ expires_in_seconds: 600, labels: { for: "agents" } }),
    });
    const { token } = (await minted.json()) as { token: string };
    const port = Number(server.bridge.split(":").at(-1));
    const worker = startWorkerProcess(port, { words: ["--token", "-"], stdin: token });
    try {
      await untilIdle(server);
      const program = Bun.spawn(["python3", join(import.meta.dir, "agent.py")], {
        env: { ...home.env, CPRG_SERVER: server.url, CPRG_KEY: server.key },
        stdout: "pipe",
        stderr: "pipe",
      });
      const [out, said] = await Promise.all([program.stdout.text(), program.stderr.text()]);
      expect({ code: await program.exited, said }).toMatchObject({ code: 0 });
      const { steps, facts, lines, worker: used } = JSON.parse(out);
      expect([steps, facts[0], lines]).toEqual([3, "Linux", 3]);
      const listed = (await (await server.request("/v1/workers")).json()) as {
        workers: { worker_id: string; claims: unknown[] }[];
      };
      expect(listed.workers).toMatchObject([{ worker_id: used, claims: [] }]);
      expect(facts[1]).toStartWith("ID=");
      expect(Number(facts[2])).toBeGreaterThan(0);
    } finally {
      await worker.end();
    }
  },
);
