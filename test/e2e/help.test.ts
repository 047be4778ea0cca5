// The binary's own words: help, version, wrong use. Needs no sandbox.

import { describe, expect, test } from "bun:test";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json";
import { COMMANDS } from "../../src/cli/commands.ts";
import { commandHelp } from "../../src/cli/help.ts";
import { call, makeHome } from "./cprg.ts";

test("version is that of package.json", async () => {
  expect(await call(["version"])).toEqual({
    code: 0,
    out: `cprg ${packageJson.version}\n`,
    err: "",
  });
});

test("--help lists every command", async () => {
  const { code, out, err } = await call(["--help"]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  for (const { name, summary } of COMMANDS) {
    const line = out.split("\n").find((candidate) => candidate.startsWith(`  ${name} `));
    expect(line?.endsWith(`  ${summary}`)).toBe(true);
  }
});

test.each(COMMANDS.map((command) => [command.name, command] as const))(
  "%s --help has usage, description, flags and examples",
  async (name, command) => {
    const { code, out, err } = await call([name, "--help"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toBe(commandHelp(command));
    const titles = [...out.matchAll(/^([A-Z][a-z]+):$/gm)].map((match) => match[1]);
    expect(titles).toEqual(["Usage", "Description", "Flags", "Examples"]);
  },
);

describe("wrong use ends with 2, on standard error", () => {
  test.each([
    [[], "Commands:"],
    [["nope"], 'Cannot run command "nope"'],
    [["run", "--nope"], 'Cannot use flag "--nope"'],
    [["run", "/nonexistent.py"], "no such file"],
    [["run", "-c", "1", "--limit", "nope=1"], 'Cannot use limit "nope"'],
    [["run", "-c", "1", "--limit", "pids=0"], "limits.pids"],
    [["run", "-c", "1", "extra"], "both a script and --code"],
    [["run", "-c", "1", "--allow-missing", "bogus"], 'Cannot use --allow-missing "bogus"'],
    [["serve", "--check", "--ceilings", "wall_seconds=3000000"], "at most 2147483"],
    [["serve", "--addr", "nope"], 'Cannot use --addr "nope"'],
    [["jobs", "--server", "nope"], 'Cannot use server "nope"'],
    [["logs", "nope"], 'Cannot use job "nope"'],
    [["verify", "/nonexistent"], "Cannot read"],
  ])("cprg %p", async (words, text) => {
    const { code, out, err } = await call(words as string[]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain(text as string);
  });
});

test("Bun's own switches in the environment run nothing", async () => {
  using home = makeHome();
  const canary = join(home.path, "canary");
  const script = join(home.path, "preload.js");
  writeFileSync(script, `require("node:fs").writeFileSync(${JSON.stringify(canary)}, "")`);
  writeFileSync(join(home.path, ".env"), "CPRG_SERVER=http://127.0.0.1:1");
  writeFileSync(join(home.path, "bunfig.toml"), `preload = [${JSON.stringify(script)}]`);
  await call(["version"], { env: { BUN_OPTIONS: `--preload ${script}` }, cwd: home.path });
  const plain = await call(["version"], { cwd: home.path });
  expect(plain).toMatchObject({ code: 0, err: "" });
  expect(existsSync(canary)).toBe(false);
});
