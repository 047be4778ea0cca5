import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { paced } from "./pace.ts";
import { ID_RANGE, makeDirs } from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const PROGRAM = join(import.meta.dir, "../fixtures/engine-in-process.ts");
/** Longest that a process may live on after its engine was closed. */
const END_TIMEOUT_MS = paced(30_000);

host.describe("a closed engine", () => {
  test("holds no timer and no descriptor that keeps its process alive", async () => {
    const dirs = makeDirs();
    const child = Bun.spawn(
      [process.execPath, PROGRAM, dirs.run, dirs.data, String(ID_RANGE.base)],
      {
        stdout: "pipe",
        stderr: "inherit",
        env: {},
        timeout: END_TIMEOUT_MS,
        killSignal: "SIGKILL",
      },
    );
    const text = await new Response(child.stdout).text();
    await child.exited;
    rmSync(dirs.top, { recursive: true, force: true });
    expect({ text, code: child.exitCode, signal: child.signalCode }).toEqual({
      text: "exit 0\n",
      code: 0,
      signal: null,
    });
  });
});
