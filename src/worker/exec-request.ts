/** What `exec.Start` asks for, checked, as a program to start. */

import { invalid } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import { SECONDS_MAX } from "../core/limits.ts";
import { checkArgs, checkTogether } from "../core/program-rules.ts";
import type { ExecStartRequest, Pty } from "../gen/messages.ts";
import type { ExecSpec, TerminalSize } from "../provider/contract.ts";
import { checkWireEnv } from "./env-rules.ts";

/** Bytes of each stream that an exec may ask to be kept to its end. */
export const RETAIN_BYTES_MAX = 16 * 1024 * 1024;
/** Bytes of one `exec.Input`, and of the first input. */
export const INPUT_BYTES_MAX = 256 * 1024;

const EXEC_ID = /^[A-Za-z0-9._-]{1,128}$/;
const SHELL = "/bin/sh";
/** Nobody bounds an exec's output: who reads slowly holds the program back instead. */
const OUTPUT_KB_UNBOUNDED = Math.floor(Number.MAX_SAFE_INTEGER / 1024);
const COLUMNS_MAX = 65_535;

/** An exec that may be started. */
export interface ExecOrder {
  readonly id: string;
  readonly spec: ExecSpec;
  readonly retainBytes: number;
  readonly stdin: Uint8Array;
  readonly isInputOpen: boolean;
}

/**
 * Checks a request.
 *
 * @param variables beneath those of the request
 * @throws CprgError `invalid_argument` naming the field
 */
export function parseExecStart(
  request: ExecStartRequest,
  variables: Readonly<Record<string, string>>,
): ExecOrder {
  const { pty, retainBytes, stdin, stdinOpen: isInputOpen } = request;
  const id = request.execId === "" ? newId() : request.execId;
  if (!EXEC_ID.test(id)) throw invalid("exec_id", "exec_id is not 1 to 128 of A-Z a-z 0-9 . _ -");
  if (retainBytes > RETAIN_BYTES_MAX) {
    throw invalid("retain_bytes", `retain_bytes is above ${RETAIN_BYTES_MAX}`);
  }
  const [executable = "", ...rest] = wordsOf(request);
  checkWireEnv(request.env);
  const terminal = pty === null ? null : terminalSize(pty);
  const env = {
    ...(terminal === null ? {} : { TERM: "xterm-256color" }),
    ...variables,
    ...request.env,
  };
  checkTogether({ field: "argv", list: [executable, ...rest] }, env);
  const hasInput = isInputOpen || stdin.length > 0;
  const spec: ExecSpec = {
    executable,
    arguments: rest,
    variables: env,
    ...(request.cwd === "" ? {} : { directory: request.cwd }),
    ...(terminal === null ? {} : { terminal }),
    ...(hasInput && terminal === null ? { stdin: "pipe" as const } : {}),
    limits: {
      wall_seconds: request.timeoutMs === 0 ? SECONDS_MAX : secondsOf(request.timeoutMs),
      cpu_seconds: request.cpuLimitMs === 0 ? SECONDS_MAX : secondsOf(request.cpuLimitMs),
      output_kb: OUTPUT_KB_UNBOUNDED,
    },
  };
  return { id, spec, retainBytes, stdin, isInputOpen };
}

/** Size of a terminal. @throws CprgError `invalid_argument` */
export function terminalSize({ cols, rows }: Pty): TerminalSize {
  const isGood = (count: number): boolean => count >= 1 && count <= COLUMNS_MAX;
  if (isGood(cols) && isGood(rows)) return { columns: cols, rows };
  throw invalid("pty", `pty needs cols and rows from 1 to ${COLUMNS_MAX}`);
}

function wordsOf({ command, argv }: ExecStartRequest): readonly string[] {
  if ((command === "") === (argv.length === 0)) {
    throw invalid("command", "Cannot start: exactly one of command and argv must be given");
  }
  const words = command === "" ? argv : [SHELL, "-c", command];
  checkArgs(command === "" ? "argv" : "command", words);
  if (words[0] === "") throw invalid("argv[0]", "argv[0] is empty");
  return words;
}

function secondsOf(timeoutMs: number): number {
  return Math.min(SECONDS_MAX, timeoutMs / 1000);
}
