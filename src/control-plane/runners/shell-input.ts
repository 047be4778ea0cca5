/** What a shell task is to do, checked. */

import { z } from "zod";
import { invalid } from "../../core/errors.ts";
import { checkArgs } from "../../core/program-rules.ts";
import type { Json } from "../../core/task.ts";

/** Commands of one task, and characters of one that is a line. */
export const SHELL_COMMANDS_MAX = 100;
export const SHELL_LINE_CHARS_MAX = 64 * 1024;
/** Patterns of files that are collected, and characters of one. */
export const SHELL_PATTERNS_MAX = 32;
export const SHELL_PATTERN_CHARS_MAX = 1024;
/** Seconds that one command may take. */
export const SHELL_TIMEOUT_SECONDS_MAX = 24 * 3600;

const line = z.string().min(1).max(SHELL_LINE_CHARS_MAX);
const words = z.array(z.string()).min(1);
const schema = z.strictObject({
  commands: z
    .array(z.union([line, words]))
    .min(1)
    .max(SHELL_COMMANDS_MAX),
  collect: z
    .array(z.string().min(1).max(SHELL_PATTERN_CHARS_MAX))
    .max(SHELL_PATTERNS_MAX)
    .default([]),
  keep_going: z.boolean().default(false),
  timeout_seconds: z.number().positive().max(SHELL_TIMEOUT_SECONDS_MAX).optional(),
});

/** Commands as argument vectors, and the rest. */
export interface ShellInput {
  readonly commands: readonly (readonly string[])[];
  readonly collect: readonly string[];
  readonly keepGoing: boolean;
  /** Of each command; null: as long as its task. */
  readonly timeoutMs: number | null;
}

/** @throws CprgError `invalid_argument` naming the field */
export function shellInput(input: Json): ShellInput {
  const { data, error } = schema.safeParse(input);
  if (data === undefined) {
    const [issue] = error.issues;
    const field = ["input", ...(issue?.path ?? [])].join(".");
    throw invalid(field, `Cannot use ${field}: ${issue?.message ?? "not what a shell task takes"}`);
  }
  const commands = data.commands.map((command, index) => {
    const argv = typeof command === "string" ? ["sh", "-c", command] : command;
    checkArgs(`input.commands[${index}]`, argv);
    return argv;
  });
  checkArgs("input.collect", data.collect);
  for (const [index, pattern] of data.collect.entries()) {
    if (!pattern.startsWith("/") && !pattern.split("/").includes("..")) continue;
    throw invalid(`input.collect.${index}`, "Cannot collect what is not beneath the root");
  }
  return {
    commands,
    collect: data.collect,
    keepGoing: data.keep_going,
    timeoutMs: data.timeout_seconds === undefined ? null : Math.ceil(data.timeout_seconds * 1000),
  };
}
