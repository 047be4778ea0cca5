/**
 * The runner that does what its input lists: commands one after another, then the files that are
 * asked for. Its result is bounded whatever they print, and what they print is in the task's log.
 */

import { CprgError } from "../../core/errors.ts";
import type { CommandResult, SandboxLease } from "../../provider/contract.ts";
import type { Runner, RunnerContext } from "../contract.ts";
import { type CollectedFile, collectFiles } from "./collect-files.ts";
import { type ShellInput, shellInput } from "./shell-input.ts";

/** Bytes of output that all commands together keep in the result, and one stream of one command. */
export const SHELL_OUTPUT_BYTES_MAX = 96 * 1024;
export const SHELL_TAIL_BYTES_MAX = 32 * 1024;
/** Characters of a failed command's output that its task's error says. */
const ERROR_TAIL_CHARS = 1000;

/** How one command went: the tails of what it printed. */
export interface ShellCommandResult {
  /** 128 + n: signal n ended it. */
  readonly exit_code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly duration_ms: number;
}

/** What the task results in. */
export interface ShellResult {
  readonly commands: readonly ShellCommandResult[];
  readonly files: readonly CollectedFile[];
}

/**
 * Makes the runner. Its input is `{commands, collect?, keep_going?, timeout_seconds?}`: a command is
 * a line for `sh` or a list of words; `collect` are patterns as `find -path` takes them, relative to
 * the root, in which `*` matches `/`, too. A command that fails ends the task with `runner_error`
 * naming it, unless `keep_going` is true: then its exit code is in the result.
 */
export function shellRunner(): Runner {
  return async (input, context) => await runShell(shellInput(input), context);
}

async function runShell(input: ShellInput, context: RunnerContext): Promise<ShellResult> {
  const { lease, signal } = context;
  const commands: ShellCommandResult[] = [];
  for (const [index, argv] of input.commands.entries()) {
    signal.throwIfAborted();
    const result = await runOne(argv, { input, context });
    commands.push(result);
    if (result.exit_code !== 0 && !input.keepGoing) throw failed(index, result, input);
  }
  const files = await collectFiles(lease, { patterns: input.collect, signal });
  return { commands, files };
}

async function runOne(
  argv: readonly string[],
  { input, context }: { readonly input: ShellInput; readonly context: RunnerContext },
): Promise<ShellCommandResult> {
  const { signal, lease, note } = context;
  await note(`$ ${argv[0] === "sh" ? argv.at(-1) : argv.join(" ")}\n`);
  const startedMs = performance.now();
  const { status, stdout, stderr } = await invoke(lease, argv, { input, signal });
  const durationMs = Math.round(performance.now() - startedMs);
  for (const text of [stdout, stderr]) if (text !== "") await note(text);
  if (status !== 0) await note(`exit code ${status}\n`);
  return { exit_code: status, stdout, stderr, duration_ms: durationMs };
}

async function invoke(
  lease: SandboxLease,
  [executable = "", ...words]: readonly string[],
  { input, signal }: { readonly input: ShellInput; readonly signal: AbortSignal },
): Promise<CommandResult> {
  const share = Math.floor(SHELL_OUTPUT_BYTES_MAX / (2 * input.commands.length));
  return await lease.invoke({
    executable,
    arguments: words,
    signal,
    retain: Math.min(SHELL_TAIL_BYTES_MAX, share),
    ...(input.timeoutMs === null ? {} : { deadlineMs: input.timeoutMs }),
  });
}

function failed(index: number, result: ShellCommandResult, { commands }: ShellInput): CprgError {
  const said = (result.stderr.trim() || result.stdout.trim()).slice(-ERROR_TAIL_CHARS);
  const which = `command ${index + 1} of ${commands.length}`;
  const message = `${which} ended with exit code ${result.exit_code}${said === "" ? "" : `: ${said}`}`;
  return new CprgError("failed_precondition", message, { reason: "RUNNER_ERROR" });
}
