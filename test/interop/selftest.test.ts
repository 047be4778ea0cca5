// The reference worker against the scripted control plane, both in Python: every case of selftest.py.

import { afterAll, beforeAll, expect } from "bun:test";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { ALL_CASES } from "./selftest-cases.ts";

const SELFTEST = join(import.meta.dir, "selftest.py");
const host = requireHost({ linux: true, programs: ["protoc", "openssl", "git"] });

host.describe("selftest.py", () => {
  const verdicts = new Map(ALL_CASES.map((name) => [name, Promise.withResolvers<string>()]));
  let child: Bun.Subprocess<"ignore", "pipe", "inherit">;

  /** The cases run one after the other in one process; each test waits for the line of its own. */
  async function follow(output: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    let text = "";
    for await (const bytes of output) {
      text += decoder.decode(bytes, { stream: true });
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        const [, verdict = "", name = ""] = /^(ok|FAILED) (\w+) /.exec(line) ?? [];
        verdicts.get(name)?.resolve(verdict);
      }
    }
    for (const { resolve } of verdicts.values()) resolve("was not run");
  }

  beforeAll(() => {
    child = Bun.spawn(["/usr/bin/python3", SELFTEST], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "inherit",
    });
    void follow(child.stdout);
  });

  afterAll(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });

  for (const name of ALL_CASES) {
    host.test(name.replaceAll("_", " "), async () => {
      expect(await verdicts.get(name)?.promise).toBe("ok");
    });
  }

  host.test("nothing failed in between", async () => {
    expect(await child.exited).toBe(0);
    expect(ALL_CASES.length).toBeGreaterThan(40);
  });
});
