/** What `cprg run` says on standard error after a run that the program itself did not end. */

import type { Reason } from "../core/reasons.ts";
import { exitCodeOfRun, exitCodeOfSignal } from "./exit-code.ts";
import { paintFor, printable } from "./output.ts";
import type { Terminal, TerminalSignal } from "./terminal.ts";

/** How a run ended, wherever it ran. */
export interface ReportedEnd {
  readonly reason: Reason;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly error: { readonly message: string; readonly hint?: string } | null;
}

/** What happened to cprg itself meanwhile. */
export interface RunCircumstances {
  /** The command that speaks: `run`. */
  readonly command: string;
  /** Effective limits by name. */
  readonly limits: Readonly<Record<string, unknown>>;
  /** The signal that asked cprg to stop, or null. */
  readonly stoppedBy: TerminalSignal | null;
}

/** The exit code of a run. */
export function runExitCode(end: ReportedEnd, { stoppedBy }: RunCircumstances): number {
  return end.reason === "user" && stoppedBy !== null
    ? exitCodeOfSignal(stoppedBy)
    : exitCodeOfRun(end);
}

/** Says why a run ended, unless the program ended by itself. */
export async function reportEnd(
  end: ReportedEnd,
  circumstances: RunCircumstances,
  terminal: Terminal,
): Promise<void> {
  const text = endText(end, circumstances.limits);
  if (text === null) return;
  const paint = paintFor(terminal.stderr, terminal.env);
  const hint = end.error?.hint === undefined ? "" : `\n  hint: ${printable(end.error.hint)}`;
  const line = `${paint("yellow", `cprg ${circumstances.command}:`)} ${printable(text)}${hint}\n`;
  await terminal.stderr.write(line).catch(() => undefined);
}

function endText(end: ReportedEnd, limits: Readonly<Record<string, unknown>>): string | null {
  switch (end.reason) {
    case "exit":
      return null;
    case "signal":
      return `the program was ended by ${end.signal ?? "a signal"}`;
    case "wall_limit":
      return `timed out after ${limits["wall_seconds"]} s (limit wall_seconds)`;
    case "cpu_limit":
      return `used ${limits["cpu_seconds"]} s of CPU time (limit cpu_seconds)`;
    case "oom":
      return `out of memory at ${limits["mem_mb"]} MiB (limit mem_mb)`;
    case "seccomp_violation":
      return "ended for a system call that no program may make; its log has a violation event";
    case "user":
      return "cancelled";
    default:
      return `${end.reason}${end.error === null ? "" : `: ${end.error.message}`}`;
  }
}

/** Says which limits were asked above their ceiling. */
export async function reportClamped(
  asked: Readonly<Record<string, number>>,
  effective: Readonly<Record<string, unknown>>,
  terminal: Terminal,
): Promise<void> {
  for (const [name, value] of Object.entries(asked)) {
    const given = effective[name];
    if (typeof given !== "number" || given >= value) continue;
    const line = `cprg run: limit ${name} is ${given}, its ceiling, not ${value}\n`;
    await terminal.stderr.write(line).catch(() => undefined);
  }
}
