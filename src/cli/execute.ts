/** From the words of a command line to an exit code: finds the command, runs it, reports errors. */

import { CprgError } from "../core/errors.ts";
import type { Command, FlagSpecs, FlagValues } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { EXIT, exitCodeOfError } from "./exit-code.ts";
import { parseLine, usageError } from "./flags.ts";
import { commandHelp, programHelp } from "./help.ts";
import { fromOsError } from "./os-error.ts";
import { reportError } from "./report-error.ts";
import { nearest } from "./suggest.ts";
import { ClosedOutput, type Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";

/**
 * Runs a command line.
 *
 * @param words without the program's own name
 * @returns the exit code; only a bug makes it throw
 */
export async function execute(words: readonly string[], terminal: Terminal): Promise<number> {
  try {
    return await dispatchWords(words, terminal);
  } catch (thrown) {
    if (thrown instanceof ClosedOutput) return EXIT.closedOutput;
    const error = CprgError.is(thrown) ? thrown : fromOsError(thrown);
    if (error === null) throw thrown;
    const known = COMMANDS.some((command) => command.name === words[0]);
    await reportError(error, known ? `cprg ${words[0]}` : "cprg", terminal);
    return exitCodeOfError(error);
  }
}

async function dispatchWords(words: readonly string[], terminal: Terminal): Promise<number> {
  const [first, ...others] = words;
  switch (first) {
    case undefined:
      await terminal.stderr.write(programHelp(COMMANDS));
      return EXIT.usage;
    case "--help":
    case "-h":
      await terminal.stdout.write(programHelp(COMMANDS));
      return EXIT.ok;
    case "--version":
    case "-V":
      await terminal.stdout.write(`cprg ${VERSION}\n`);
      return EXIT.ok;
    case "help":
      return await showHelp(others, terminal);
    default:
      return await runCommand(findCommand(first), others, terminal);
  }
}

async function runCommand(command: Command, words: readonly string[], terminal: Terminal) {
  const line = parseLine(words, command, terminal.env);
  if (line.wantsHelp) return await showHelp([command.name], terminal);
  // parseLine() gives every flag of the command the type that its kind says.
  const flags = line.flags as FlagValues<FlagSpecs>;
  return await command.run({ flags, args: line.args, rest: line.rest, terminal });
}

async function showHelp(words: readonly string[], terminal: Terminal): Promise<number> {
  const [name] = words;
  const text = name === undefined ? programHelp(COMMANDS) : commandHelp(findCommand(name));
  await terminal.stdout.write(text);
  return EXIT.ok;
}

function findCommand(name: string): Command {
  const found = COMMANDS.find((command) => command.name === name || command.aliases.includes(name));
  if (found !== undefined) return found;
  if (name.startsWith("-")) {
    throw usageError(`Cannot use flag "${name}": flags go after the command`, "cprg --help");
  }
  const names = COMMANDS.flatMap((command) => [command.name, ...command.aliases]);
  const near = nearest(name, names);
  throw usageError(
    `Cannot run command "${name}": unknown`,
    near === null ? '"cprg --help" lists the commands' : `Did you mean "cprg ${near}"?`,
  );
}
