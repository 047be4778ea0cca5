import { expect, test } from "bun:test";
import { execute } from "../../../src/cli/execute.ts";
import { ClosedOutput, type Terminal } from "../../../src/cli/terminal.ts";
import { VERSION } from "../../../src/cli/version.ts";
import { memoryTerminal } from "./memory-terminal.ts";

async function run(words: string[]) {
  const terminal = memoryTerminal();
  const code = await execute(words, terminal);
  return { code, out: terminal.out(), err: terminal.err() };
}

test("execute() prints the version in three ways", async () => {
  for (const words of [["version"], ["--version"], ["-V"]]) {
    expect(await run(words)).toEqual({ code: 0, out: `cprg ${VERSION}\n`, err: "" });
  }
  expect(JSON.parse((await run(["version", "--json"])).out)).toMatchObject({ version: VERSION });
});

test("execute() without a command shows help on standard error, code 2", async () => {
  const result = await run([]);
  expect(result).toMatchObject({ code: 2, out: "" });
  expect(result.err).toContain("Commands:");
});

test.each([
  [["vresion"], 'Did you mean "cprg version"?'],
  [["zzzzz"], '"cprg --help" lists the commands'],
  [["--json", "version"], "flags go after the command"],
  [["help", "nope"], 'Cannot run command "nope"'],
  [["version", "extra"], 'Cannot use argument "extra"'],
  [["cancel", "not-an-id"], 'Cannot use job "not-an-id"'],
  [["cancel"], "ID is missing"],
])("execute(%j) is a usage error", async (words, text) => {
  const result = await run(words);
  expect(result).toMatchObject({ code: 2, out: "" });
  expect(result.err).toContain(text);
});

test("execute() shows hostile words without control characters", async () => {
  expect((await run(["\x1b[2J"])).err).not.toContain("\x1b");
});

test("execute() ends quietly with 141 when its output was closed", async () => {
  const terminal = memoryTerminal();
  const closed: Terminal = {
    ...terminal,
    stdout: { ...terminal.stdout, write: async () => Promise.reject(new ClosedOutput()) },
  };
  expect(await execute(["version"], closed)).toBe(141);
  expect(terminal.err()).toBe("");
});

test.each([
  ["write", 1, "Cannot write output: ENOSPC"],
  ["open", 2, "Cannot go on: no space"],
])("execute() reports the error of a system call: %s", async (syscall, code, text) => {
  const terminal = memoryTerminal();
  const error = Object.assign(new Error("no space"), { code: "ENOSPC", syscall });
  const stdout = { ...terminal.stdout, write: async () => Promise.reject(error) };
  expect(await execute(["version"], { ...terminal, stdout })).toBe(code);
  expect(terminal.err()).toContain(text);
});

test("execute() hides no bug", async () => {
  const terminal = memoryTerminal();
  const stdout = { ...terminal.stdout, write: async () => Promise.reject(new Error("BUG")) };
  await expect(execute(["version"], { ...terminal, stdout })).rejects.toThrow("BUG");
});
