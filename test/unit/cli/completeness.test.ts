// Commands, their help and their flags agree, and nothing is missing.

import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { COMMANDS } from "../../../src/cli/commands.ts";
import { knownVariables } from "../../../src/cli/config.ts";
import { execute } from "../../../src/cli/execute.ts";
import { parseLine } from "../../../src/cli/flags.ts";
import { commandHelp } from "../../../src/cli/help.ts";
import { memoryTerminal } from "./memory-terminal.ts";

const source = join(import.meta.dir, "../../../src/cli/commands");

test("every file in commands/ is one command of the table, and the other way round", () => {
  const files = readdirSync(source).map((name) => name.replace(/\.ts$/, ""));
  expect(files.sort()).toEqual(COMMANDS.map((command) => command.name).sort());
});

test("names and aliases are used once", () => {
  const names = COMMANDS.flatMap((command) => [command.name, ...command.aliases]);
  expect(names).toEqual([...new Set(names)]);
});

describe.each(COMMANDS.map((command) => [command.name, command] as const))("%s", (_, command) => {
  const help = commandHelp(command);

  test("has help with usage, description, flags and examples", () => {
    for (const title of ["Usage:", "Description:", "Flags:", "Examples:"]) {
      expect(help).toContain(`\n${title}\n`);
    }
    expect(command.help.usage.length).toBeGreaterThan(0);
    expect(command.help.examples.length).toBeGreaterThan(0);
    expect(command.summary).toMatch(/^[A-Z].*[^.]$/);
    expect(help).not.toMatch(/\t|undefined| \n/);
    for (const line of help.split("\n")) expect(line.length).toBeLessThanOrEqual(110);
  });

  test("documents each flag, with its short form and variable", () => {
    for (const [name, flag] of Object.entries(command.flags)) {
      expect(name).toMatch(/^[a-z]+(?:-[a-z]+)*$/);
      expect(help).toContain(`--${name}`);
      expect(flag.doc.length).toBeGreaterThan(0);
      if (flag.short !== undefined) expect(help).toContain(`-${flag.short}, --${name}`);
      if (flag.env !== undefined) expect(help.replace(/\s+/g, " ")).toContain(`env ${flag.env}`);
    }
    const shorts = Object.values(command.flags).flatMap((flag) => flag.short ?? []);
    expect(shorts).toEqual([...new Set(shorts)]);
    expect(shorts).not.toContain("h");
  });

  test("reads only variables that the list of known ones holds", () => {
    const known = knownVariables();
    for (const { env } of Object.values(command.flags)) {
      if (env !== undefined) expect(known).toContain(env);
    }
  });

  test("has examples that its own flags accept", () => {
    const examples = command.help.examples.map(({ line }) => line);
    for (const line of examples) {
      const own = /(?:^|\s)cprg\s+(\S+)\s*([^|>]*)/.exec(line);
      expect([command.name, ...command.aliases]).toContain(own?.[1] ?? "");
      const words = shellWords(own?.[2] ?? "");
      expect(() => parseLine(words, command, {})).not.toThrow();
    }
  });
});

test("help lists every command, and help COMMAND is COMMAND --help", async () => {
  const all = memoryTerminal();
  expect(await execute(["--help"], all)).toBe(0);
  for (const command of COMMANDS) {
    expect(all.out()).toContain(`  ${command.name} `);
    const left = memoryTerminal();
    const right = memoryTerminal();
    expect(await execute(["help", command.name], left)).toBe(0);
    expect(await execute([command.name, "--help"], right)).toBe(0);
    expect(left.out()).toBe(right.out());
    expect(left.out()).toBe(commandHelp(command));
  }
});

/** Words of a simple shell line: blanks between, quotes of both kinds around. */
function shellWords(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    (match) => match[1] ?? match[2] ?? match[3] ?? "",
  );
}
