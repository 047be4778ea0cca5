/** What a subcommand is: its name, help, flags and action. One file in `commands/` each. */

import type { Terminal } from "./terminal.ts";

interface AnyFlagSpec {
  /** One letter, for `-x`. */
  readonly short?: string;
  /** Environment variable with the same meaning; the flag wins. */
  readonly env?: string;
  /** `config.ts` reads the variable, because a file may hold the value too. */
  readonly isSetting?: boolean;
  readonly doc: string;
}

/** A flag that is present or not. */
export interface SwitchSpec extends AnyFlagSpec {
  readonly kind: "switch";
}

/** A flag with one value; the last one given wins. */
export interface TextSpec extends AnyFlagSpec {
  readonly kind: "text";
  /** What help shows for the value: `FILE`. */
  readonly value: string;
}

/** A flag that may be given several times; its variable holds the values with commas between. */
export interface ListSpec extends AnyFlagSpec {
  readonly kind: "list";
  readonly value: string;
}

/** One flag. */
export type FlagSpec = SwitchSpec | TextSpec | ListSpec;

/** Flags by their long name, without the dashes. */
export type FlagSpecs = Readonly<Record<string, FlagSpec>>;

/** What was given: a list is empty and text undefined when it was not. */
export type FlagValues<F extends FlagSpecs> = {
  readonly [K in keyof F]: F[K] extends SwitchSpec
    ? boolean
    : F[K] extends ListSpec
      ? readonly string[]
      : string | undefined;
};

/** A positional argument. */
export interface ArgumentSpec {
  /** In capitals, as in the usage line: `FILE`. */
  readonly name: string;
  readonly required: boolean;
}

/** A command line that shows one use, and what it does. */
export interface Example {
  readonly line: string;
  readonly does: string;
}

/** Text of `--help`. */
export interface CommandHelp {
  /** Usage lines without `cprg NAME`: `[flags] SCRIPT [-- ARG...]`. */
  readonly usage: readonly string[];
  /** Paragraphs. */
  readonly description: readonly string[];
  readonly examples: readonly Example[];
}

/** What an action is given. */
export interface CommandContext<F extends FlagSpecs> {
  readonly flags: FlagValues<F>;
  /** Positional arguments before `--`. */
  readonly args: readonly string[];
  /** Everything after `--`; null when there was none. */
  readonly rest: readonly string[] | null;
  readonly terminal: Terminal;
}

/** A subcommand. */
export interface Command<F extends FlagSpecs = FlagSpecs> {
  readonly name: string;
  readonly aliases: readonly string[];
  /** One line for the list of commands. */
  readonly summary: string;
  readonly help: CommandHelp;
  readonly flags: F;
  readonly arguments: readonly ArgumentSpec[];
  /** Whether it takes arguments after `--`. */
  readonly takesRest: boolean;
  /**
   * Does it.
   *
   * @returns the exit code
   * @throws CprgError, which becomes a message and an exit code in one place
   */
  run(context: CommandContext<F>): Promise<number>;
}

/** Types a command by its own flags and forgets them again, for the table. */
export function defineCommand<const F extends FlagSpecs>(command: Command<F>): Command {
  return command as unknown as Command;
}
