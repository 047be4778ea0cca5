/**
 * From what a client asked for to a job's spec: every rule that does not depend on how the request
 * came in. HTTP and `cprg run` use it alike.
 */

import { invalid } from "../core/errors.ts";
import type { JobFile, JobSpec } from "../core/job.ts";
import { CEILING_LIMITS, type Limits, parseLimits } from "../core/limits.ts";
import { placementOf } from "../core/placement.ts";
import {
  checkArgs,
  checkEnv,
  checkedLabels,
  checkTogether,
  graceOf,
  stdinOf,
} from "../core/program-rules.ts";
import { checkWellFormed, utf8Bytes } from "../core/text-rules.ts";
import { checkFiles } from "./file-rules.ts";

/** Bytes of code. */
export const CODE_BYTES_MAX = 8 * 1024 * 1024;
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
  readonly placement?:
    | { readonly labels?: Readonly<Record<string, string>> | undefined }
    | undefined;
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
    placement: placementOf(request.placement),
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
