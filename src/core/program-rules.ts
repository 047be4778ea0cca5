/** Rules for what any program may be asked to run with: arguments, environment, labels, input. */

import { invalid } from "./errors.ts";
import { base64Bytes, checkCString, checkWellFormed, shown, utf8Bytes } from "./text-rules.ts";

/** Entries of `args` or `argv`. */
export const ARGS_MAX = 1024;
/** Variables of one job. */
export const ENV_MAX = 1024;
/** Bytes of arguments and environment together, each with its NUL (execve(2); `ffi/cprg.h`). */
export const ARGS_AND_ENV_BYTES_MAX = 128 * 1024;
/** Labels of one job, and characters of a label's name and value. */
export const LABELS_MAX = 32;
export const LABEL_VALUE_CHARS_MAX = 256;
/** Grace between SIGTERM and SIGKILL, in seconds. */
export const KILL_GRACE_SECONDS_DEFAULT = 2;
export const KILL_GRACE_SECONDS_MAX = 30;

const LABEL_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$/;
const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,255}$/;

/**
 * Standard input in base64, or null for none.
 *
 * @throws CprgError `invalid_argument` for both forms at once, or one that is malformed
 */
export function stdinOf({
  stdin,
  stdinBase64,
}: {
  readonly stdin?: string | undefined;
  readonly stdinBase64?: string | undefined;
}): string | null {
  if (stdin !== undefined && stdinBase64 !== undefined) {
    throw invalid("stdin_base64", "Cannot use stdin_base64 together with stdin");
  }
  if (stdinBase64 !== undefined) {
    base64Bytes("stdin_base64", stdinBase64);
    return stdinBase64;
  }
  if (stdin === undefined) return null;
  checkWellFormed("stdin", stdin);
  return Buffer.from(stdin, "utf8").toString("base64");
}

/** @throws CprgError `invalid_argument` for arguments that execve(2) cannot take */
export function checkArgs(field: string, args: readonly string[]): void {
  if (args.length > ARGS_MAX) {
    throw invalid(field, `Cannot use ${field}: ${args.length} entries, at most ${ARGS_MAX}`);
  }
  for (const [index, arg] of args.entries()) checkCString(`${field}[${index}]`, arg);
}

/** @throws CprgError `invalid_argument` naming the variable at fault */
export function checkEnv(env: Readonly<Record<string, string>>): void {
  const entries = Object.entries(env);
  if (entries.length > ENV_MAX) {
    throw invalid("env", `Cannot use env: ${entries.length} variables, at most ${ENV_MAX}`);
  }
  for (const [name, value] of entries) {
    if (!ENV_NAME.test(name)) {
      throw invalid(
        `env.${shown(name)}`,
        `Cannot use variable "${shown(name)}": not a name`,
        "Letters, digits and _, not beginning with a digit, at most 256",
      );
    }
    checkCString(`env.${name}`, value);
  }
}

/** @throws CprgError `invalid_argument` when both together are longer than the bound */
export function checkTogether(
  args: { field: string; list: readonly string[] },
  env: Readonly<Record<string, string>>,
): void {
  const argsBytes = args.list.reduce((sum, arg) => sum + utf8Bytes(arg) + 1, 0);
  const envBytes = Object.entries(env).reduce(
    (sum, [name, value]) => sum + utf8Bytes(name) + utf8Bytes(value) + 2,
    0,
  );
  if (argsBytes + envBytes <= ARGS_AND_ENV_BYTES_MAX) return;
  const field = argsBytes >= envBytes ? args.field : "env";
  throw invalid(
    field,
    `Cannot use ${field}: arguments and environment take ${argsBytes + envBytes} bytes, at most ${ARGS_AND_ENV_BYTES_MAX} together`,
    "Send large content as stdin or files",
  );
}

/** @throws CprgError `invalid_argument` naming the label at fault */
export function checkedLabels(labels: Readonly<Record<string, string>>) {
  const entries = Object.entries(labels);
  if (entries.length > LABELS_MAX) {
    throw invalid("labels", `Cannot use labels: ${entries.length} of them, at most ${LABELS_MAX}`);
  }
  for (const [name, value] of entries) {
    const field = `labels.${shown(name)}`;
    if (!LABEL_NAME.test(name)) {
      throw invalid(
        field,
        `Cannot use label "${shown(name)}": not a name`,
        "Letters, digits, . _ / and -, beginning and ending with a letter or digit, at most 63",
      );
    }
    checkCString(field, value);
    if (value.length > LABEL_VALUE_CHARS_MAX) {
      throw invalid(field, `Cannot use ${field}: above ${LABEL_VALUE_CHARS_MAX} characters`);
    }
  }
  return labels;
}

/**
 * Seconds between SIGTERM and SIGKILL.
 *
 * @throws CprgError `invalid_argument` beyond the range
 */
export function graceOf(seconds: number | undefined): number {
  if (seconds === undefined) return KILL_GRACE_SECONDS_DEFAULT;
  if (!Number.isFinite(seconds) || seconds < 0 || seconds > KILL_GRACE_SECONDS_MAX) {
    throw invalid(
      "kill_grace_seconds",
      `Cannot use kill_grace_seconds "${seconds}": not within 0 and ${KILL_GRACE_SECONDS_MAX}`,
    );
  }
  return seconds;
}
