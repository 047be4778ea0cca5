// What `cprg tasks submit` makes of its flags.

import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseSeconds } from "../../../src/cli/durations.ts";
import { type SubmitFlags, taskBody } from "../../../src/cli/task-input.ts";
import { memoryTerminal } from "./memory-terminal.ts";

const NOTHING: SubmitFlags = {
  command: [],
  collect: [],
  prompt: undefined,
  input: undefined,
  runner: undefined,
  label: [],
  env: [],
  repo: undefined,
  ref: undefined,
};

const bodyOf = async (flags: Partial<SubmitFlags>) =>
  await taskBody({ ...NOTHING, ...flags }, memoryTerminal());

describe("taskBody()", () => {
  test("commands are for the shell, a prompt is for the agent", async () => {
    expect(await bodyOf({ command: ["a", "b,c"], collect: ["*.txt"] })).toEqual({
      runner: "shell",
      input: { commands: ["a", "b,c"], collect: ["*.txt"] },
    });
    expect(await bodyOf({ prompt: "do it", label: ["os=linux", "x=a=b"], env: ["A=1"] })).toEqual({
      runner: "agent",
      input: "do it",
      labels: { os: "linux", x: "a=b" },
      env: { A: "1" },
    });
    expect(await bodyOf({ command: ["a"], repo: "https://h/x.git", ref: "main" })).toMatchObject({
      repo_url: "https://h/x.git",
      ref: "main",
    });
  });

  test("an input is JSON of a file, and not too long", async () => {
    const folder = mkdtempSync(join(tmpdir(), "cprg-input-"));
    try {
      const path = join(folder, "input.json");
      writeFileSync(path, '{"commands":["x"]}');
      expect(await bodyOf({ input: path })).toEqual({
        runner: "shell",
        input: { commands: ["x"] },
      });
      writeFileSync(path, "{");
      await expect(bodyOf({ input: path })).rejects.toThrow("no JSON");
      writeFileSync(path, `"${"x".repeat(1024 * 1024)}"`);
      await expect(bodyOf({ input: path })).rejects.toThrow("above 1 MiB");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("what to do is said, and once", async () => {
    await expect(bodyOf({})).rejects.toThrow("nothing to do");
    await expect(bodyOf({ command: ["a"], prompt: "b" })).rejects.toThrow("more than one");
    await expect(bodyOf({ prompt: "b", collect: ["x"] })).rejects.toThrow("--collect without -c");
    await expect(bodyOf({ command: ["a"], label: ["x"] })).rejects.toThrow("--label");
  });
});

test("times have a unit, or are seconds", () => {
  const read = ["90", "90s", "15m", "12h", "30d"].map((text) => parseSeconds(text, "--x"));
  expect(read).toEqual([90, 90, 900, 43_200, 2_592_000]);
  for (const text of ["", "1w", "-1s", "1.5h"]) {
    expect(() => parseSeconds(text, "--x")).toThrow(`Cannot use --x "${text}"`);
  }
});
