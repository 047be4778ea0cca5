// The control plane in Node, as it is embedded: bundled, with a worker in another process.

import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { startWorkerProcess } from "../worker/process.ts";
import { TOKEN } from "./ground.ts";

const host = requireHost({ programs: ["node"] });
const FIXTURE = join(import.meta.dir, "../fixtures/embed-control-plane.ts");

host.test("drives a worker from Node 20 on, without any API of Bun", async () => {
  const directory = mkdtempSync(join(tmpdir(), "cprg-node-"));
  try {
    const built = await Bun.build({ entrypoints: [FIXTURE], target: "node", outdir: directory });
    expect(built.success).toBe(true);
    const child = Bun.spawn(["node", join(directory, "embed-control-plane.js"), TOKEN], {
      stdout: "pipe",
      stderr: "inherit",
      stdin: "ignore",
    });
    const lines = linesOf(child.stdout);
    const worker = startWorkerProcess(Number(await lines.next().then(({ value }) => value)), {
      words: ["--token", TOKEN],
    });
    try {
      const said: unknown[] = [];
      for await (const line of lines) said.push(JSON.parse(line));
      expect(said).toMatchObject([
        {
          status: "succeeded",
          result: {
            commands: [{ exit_code: 0 }, { exit_code: 0, stdout: "Linux\n" }],
            files: [{ path: "out", encoding: "utf8", content: "of-the-claim\n" }],
          },
        },
        { status: "succeeded", result: 0 },
        [3, 1],
      ]);
      expect(await child.exited).toBe(0);
    } finally {
      child.kill("SIGKILL");
      await worker.end();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test("the source of the control plane names nothing of Bun", async () => {
  const built = await Bun.build({ entrypoints: [FIXTURE], target: "node" });
  const [output] = built.outputs;
  const text = (await output?.text()) ?? "";
  expect(text.length).toBeGreaterThan(100_000);
  const named = text.match(/\bBun\.\w+|["']bun:\w+["']|withResolvers|fromAsync/g) ?? [];
  // Asked for where there is a Bun.
  expect(named.filter((name) => name !== "Bun.gc")).toEqual([]);
});

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, void, void> {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const bytes of stream) {
    const lines = `${rest}${decoder.decode(bytes, { stream: true })}`.split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
}
