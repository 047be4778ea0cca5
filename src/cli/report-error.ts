/** How an operational error is shown: one line for what failed, one for what to do. */

import type { CprgError } from "../core/errors.ts";
import { paintFor, printable } from "./output.ts";
import type { Terminal } from "./terminal.ts";

/**
 * Writes an error to standard error. A closed one takes nothing away from the exit code.
 *
 * @param who the command that failed: `cprg run`
 */
export async function reportError(error: CprgError, who: string, terminal: Terminal) {
  const paint = paintFor(terminal.stderr, terminal.env);
  const { message, hint, setup } = error;
  const step = setup === undefined ? "" : ` (step ${setup.step}: ${setup.errnoName})`;
  const lines = [
    `${paint("red", `${who}:`)} ${printable(message)}${step}`,
    ...(hint === undefined ? [] : [`  ${paint("dim", "hint:")} ${printable(hint)}`]),
  ];
  await terminal.stderr.write(`${lines.join("\n")}\n`).catch(() => undefined);
}
