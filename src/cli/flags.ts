/**
 * Command lines: `node:util` splits them into tokens, this checks the tokens against a command's
 * flags and fills in from the environment what was not given.
 */

import { parseArgs } from "node:util";
import { CprgError } from "../core/errors.ts";
import type { ArgumentSpec, FlagSpec, FlagSpecs } from "./command.ts";
import { nearest } from "./suggest.ts";

/** Every command has it. */
export const HELP_FLAG = {
  kind: "switch",
  short: "h",
  doc: "Show this help",
} as const satisfies FlagSpec;

/** What a command line must look like. */
export interface LineSpec {
  readonly flags: FlagSpecs;
  readonly arguments: readonly ArgumentSpec[];
  readonly takesRest: boolean;
}

/** A command line, taken apart. */
export interface ParsedLine {
  readonly flags: Readonly<Record<string, boolean | string | undefined | readonly string[]>>;
  readonly args: readonly string[];
  readonly rest: readonly string[] | null;
  /** `--help` was given; nothing else was checked then. */
  readonly wantsHelp: boolean;
}

/** A mistake in how a command was called: exit code 2. */
export function usageError(message: string, hint?: string): CprgError {
  return new CprgError("invalid_argument", message, {
    reason: "USAGE",
    ...(hint === undefined ? {} : { hint }),
  });
}

/**
 * Parses the words after a command's name.
 *
 * @param env where flags with a variable find their value when they are not given
 * @throws CprgError for unknown flags, flags without their value, and arguments too many or too few
 */
export function parseLine(
  words: readonly string[],
  spec: LineSpec,
  env: Readonly<Record<string, string | undefined>>,
): ParsedLine {
  const flags: FlagSpecs = { ...spec.flags, help: HELP_FLAG };
  const options = Object.fromEntries(Object.entries(flags).map(toParseArgsOption));
  const { tokens } = parseArgs({
    args: [...words],
    options,
    strict: false,
    tokens: true,
    allowPositionals: true,
  });
  const end = tokens.find((token) => token.kind === "option-terminator")?.index;
  const rest = end === undefined ? null : words.slice(end + 1);
  const given = new Map<string, string[]>();
  const args: string[] = [];
  for (const token of tokens) {
    if (end !== undefined && token.index >= end) break;
    if (token.kind === "option") {
      const value = optionValue(token, flags);
      if (token.name === "help") return { flags: {}, args: [], rest: null, wantsHelp: true };
      given.set(token.name, [...(given.get(token.name) ?? []), value]);
    } else if (token.kind === "positional") args.push(token.value);
  }
  checkArguments(args, rest, spec);
  const values = Object.entries(spec.flags).map(([name, flag]) => [
    name,
    flagValue(flag, given.get(name), env),
  ]);
  return { flags: Object.fromEntries(values), args, rest, wantsHelp: false };
}

function toParseArgsOption([name, flag]: [string, FlagSpec]) {
  return [
    name,
    {
      type: flag.kind === "switch" ? ("boolean" as const) : ("string" as const),
      ...(flag.short === undefined ? {} : { short: flag.short }),
    },
  ];
}

interface OptionToken {
  readonly name: string;
  readonly rawName: string;
  readonly value?: string | undefined;
}

function optionValue(token: OptionToken, flags: FlagSpecs): string {
  const flag = Object.hasOwn(flags, token.name) ? flags[token.name] : undefined;
  if (flag === undefined) throw unknownFlag(token.rawName, flags);
  if (flag.kind === "switch") {
    if (token.value === undefined) return "true";
    throw usageError(`Cannot use ${token.rawName} "${token.value}": it takes no value`);
  }
  if (token.value === undefined) {
    throw usageError(`Cannot use ${token.rawName}: it needs a value (${flag.value})`);
  }
  return token.value;
}

function unknownFlag(rawName: string, flags: FlagSpecs): CprgError {
  const near = nearest(rawName.replace(/^-+/, ""), Object.keys(flags));
  return usageError(
    `Cannot use flag "${rawName}": unknown`,
    near === null ? "--help lists the flags" : `Did you mean --${near}?`,
  );
}

function checkArguments(
  args: readonly string[],
  rest: readonly string[] | null,
  spec: LineSpec,
): void {
  const missing = spec.arguments.find(
    (argument, index) => argument.required && index >= args.length,
  );
  if (missing !== undefined) throw usageError(`Cannot go on: ${missing.name} is missing`);
  const extra = args[spec.arguments.length];
  if (extra !== undefined) {
    throw usageError(
      `Cannot use argument "${extra}": one too many`,
      spec.takesRest ? "Arguments for the program go after --" : undefined,
    );
  }
  if (rest !== null && rest.length > 0 && !spec.takesRest) {
    throw usageError(`Cannot use argument "${rest[0]}": nothing goes after -- here`);
  }
}

function flagValue(
  flag: FlagSpec,
  given: readonly string[] | undefined,
  env: Readonly<Record<string, string | undefined>>,
): boolean | string | undefined | readonly string[] {
  // An empty variable counts as unset, as POSIX tools do with theirs.
  const isRead = flag.env !== undefined && !flag.isSetting;
  const variable = isRead ? env[flag.env ?? ""] || undefined : undefined;
  switch (flag.kind) {
    case "switch":
      if (given !== undefined) return true;
      return variable === undefined ? false : parseSwitch(variable, flag.env ?? "");
    case "text":
      return given?.at(-1) ?? variable;
    case "list":
      return given ?? (variable === undefined ? [] : splitList(variable));
  }
}

/** `1 true yes on` or `0 false no off`. */
export function parseSwitch(text: string, name: string): boolean {
  const word = text.toLowerCase();
  if (["1", "true", "yes", "on"].includes(word)) return true;
  if (["0", "false", "no", "off"].includes(word)) return false;
  throw usageError(`Cannot use ${name} "${text}": expected true or false`);
}

/** Values with commas between; blanks around them and empty ones do not count. */
export function splitList(text: string): string[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");
}
