/**
 * From what a client asked for to a job's spec: every rule that does not depend on how the request
 * came in. HTTP and `cprg run` use it alike.
 */

import { invalid } from "../core/errors.ts";
import type { JobFile, JobSpec } from "../core/job.ts";
import { CEILING_LIMITS, type Limits, parseLimits } from "../core/limits.ts";
import { checkFiles } from "./file-rules.ts";
import { base64Bytes, checkCString, checkWellFormed, shown, utf8Bytes } from "./text-rules.ts";

/** Bytes of code. */
export const CODE_BYTES_MAX = 8 * 1024 * 1024;
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

/** A file as a client gives it. */
export interface FileRequest {
  readonly path: string;
  readonly text?: string | undefined;
  readonly base64?: string | undefined;
  /** Permission bits. */
  readonly mode?: number | undefined;
}

/** What a client may ask for; the types are right, nothing else has been checked. */
export interface JobRequest {
  readonly language?: string | undefined;
  readonly code?: string | undefined;
  readonly argv?: readonly string[] | undefined;
  readonly args?: readonly string[] | undefined;
  readonly stdin?: string | undefined;
  readonly stdinBase64?: string | undefined;
  readonly files?: readonly FileRequest[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly limits?: unknown;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly killGraceSeconds?: number | undefined;
}

/**
 * The spec of a request, with effective limits.
 *
 * @param ceilings of the key or the server
 * @throws CprgError `invalid_argument` naming the field at fault
 */
export function jobSpec(request: JobRequest, ceilings: Limits = CEILING_LIMITS): JobSpec {
  const program = programOf(request);
  const limits = parseLimits(request.limits, ceilings);
  const files = (request.files ?? []).map(fileOf);
  checkFiles(files, limits);
  const env = request.env ?? {};
  const args = { field: program.code === null ? "argv" : "args", list: program.args };
  checkArgs(args.field, args.list);
  checkEnv(env);
  checkTogether(args, env);
  return {
    ...program,
    stdinBase64: stdinOf(request),
    files,
    env,
    limits,
    labels: checkedLabels(request.labels ?? {}),
    killGraceSeconds: graceOf(request.killGraceSeconds),
  };
}

/** `language` with `code`, or `argv`: one of them, and only one. */
function programOf(request: JobRequest): Pick<JobSpec, "language" | "code" | "args"> {
  const { language, code, argv, args } = request;
  if (argv !== undefined) {
    for (const field of ["language", "code", "args"] as const) {
      if (request[field] === undefined) continue;
      throw invalid(field, `Cannot use ${field} together with argv: argv is the whole command`);
    }
    if (argv.length === 0) throw invalid("argv", "Cannot use argv: it is empty");
    if (argv[0] === "") throw invalid("argv[0]", 'Cannot run program "": the name is empty');
    return { language: "argv", code: null, args: argv };
  }
  if (language === undefined) {
    throw invalid("language", "Cannot run job: language is missing", "Send language and code");
  }
  if (code === undefined) throw invalid("code", "Cannot run job: code is missing");
  checkCode(code);
  return { language, code, args: args ?? [] };
}

function checkCode(code: string): void {
  if (code === "") throw invalid("code", "Cannot run code: it is empty");
  checkWellFormed("code", code);
  if (code.includes("\0")) {
    throw invalid(
      "code",
      "Cannot run code: it has a NUL byte, which no interpreter accepts",
      "Send binary content as a file in base64",
    );
  }
  const bytes = utf8Bytes(code);
  if (bytes > CODE_BYTES_MAX) {
    throw invalid(
      "code",
      `Cannot run code: ${bytes} bytes, at most ${CODE_BYTES_MAX}`,
      "Send large content as files",
    );
  }
}

function stdinOf({ stdin, stdinBase64 }: JobRequest): string | null {
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

function fileOf(file: FileRequest, index: number): JobFile {
  const field = `files[${index}]`;
  const { path, text, base64, mode } = file;
  if ((text === undefined) === (base64 === undefined)) {
    throw invalid(field, `Cannot use ${field}: it needs one of text and base64`);
  }
  if (mode !== undefined && (!Number.isInteger(mode) || mode < 0 || mode > 0o777)) {
    throw invalid(`${field}.mode`, `Cannot use ${field}.mode "${mode}": not within 0 and 0777`);
  }
  if (text !== undefined) checkWellFormed(`${field}.text`, text);
  return {
    path,
    base64: base64 ?? Buffer.from(text ?? "", "utf8").toString("base64"),
    mode: mode ?? 0o644,
  };
}

function checkArgs(field: string, args: readonly string[]): void {
  if (args.length > ARGS_MAX) {
    throw invalid(field, `Cannot use ${field}: ${args.length} entries, at most ${ARGS_MAX}`);
  }
  for (const [index, arg] of args.entries()) checkCString(`${field}[${index}]`, arg);
}

function checkEnv(env: Readonly<Record<string, string>>): void {
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

function checkTogether(
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

function checkedLabels(labels: Readonly<Record<string, string>>): JobSpec["labels"] {
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

function graceOf(seconds: number | undefined): number {
  if (seconds === undefined) return KILL_GRACE_SECONDS_DEFAULT;
  if (!Number.isFinite(seconds) || seconds < 0 || seconds > KILL_GRACE_SECONDS_MAX) {
    throw invalid(
      "kill_grace_seconds",
      `Cannot use kill_grace_seconds "${seconds}": not within 0 and ${KILL_GRACE_SECONDS_MAX}`,
    );
  }
  return seconds;
}
