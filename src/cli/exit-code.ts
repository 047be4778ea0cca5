/** Exit codes of every command, and of `cprg run`, in one place. */

import { constants } from "node:os";
import type { CprgError, ErrorCode } from "../core/errors.ts";
import type { Reason } from "../core/reasons.ts";

/** Codes that are no program's own. */
export const EXIT = {
  ok: 0,
  failed: 1,
  /** Wrong use, or a precondition that does not hold. */
  usage: 2,
  /** Authentication or permission was refused. */
  refused: 3,
  unreachable: 4,
  /** As timeout(1). */
  timedOut: 124,
  /** The program could not be started. */
  notStarted: 125,
  /** As a shell reports SIGKILL, which is what the kernel sends. */
  outOfMemory: 137,
  /** 128 + SIGPIPE. */
  closedOutput: 141,
} as const;

/** Reason of the error that says that no server answers. */
export const UNREACHABLE = "SERVER_UNREACHABLE";

const BY_CODE: Readonly<Record<ErrorCode, number>> = {
  invalid_argument: EXIT.usage,
  failed_precondition: EXIT.usage,
  out_of_range: EXIT.usage,
  unauthenticated: EXIT.refused,
  permission_denied: EXIT.refused,
  not_found: EXIT.failed,
  already_exists: EXIT.failed,
  aborted: EXIT.failed,
  resource_exhausted: EXIT.failed,
  canceled: EXIT.failed,
  unknown: EXIT.failed,
  internal: EXIT.failed,
  data_loss: EXIT.failed,
  unimplemented: EXIT.failed,
  unavailable: EXIT.failed,
  deadline_exceeded: EXIT.failed,
};

/** The exit code of a command that ended with an error. */
export function exitCodeOfError(error: CprgError): number {
  return error.reason === UNREACHABLE ? EXIT.unreachable : BY_CODE[error.code];
}

/** How a run ended, as far as its exit code depends on it. */
export interface RunEnd {
  readonly reason: Reason;
  readonly exitCode: number | null;
  readonly signal: string | null;
}

/** The exit code of `cprg run` for a run that was not cancelled by a signal to cprg itself. */
export function exitCodeOfRun(end: RunEnd): number {
  switch (end.reason) {
    case "exit":
      return end.exitCode ?? EXIT.failed;
    case "wall_limit":
    case "cpu_limit":
      return EXIT.timedOut;
    case "oom":
      return EXIT.outOfMemory;
    case "setup_failed":
    case "no_interpreter":
      return EXIT.notStarted;
    case "signal":
    case "seccomp_violation":
      return end.signal === null ? EXIT.failed : exitCodeOfSignal(end.signal);
    case "user":
      return exitCodeOfSignal("SIGINT");
    default:
      return EXIT.failed;
  }
}

/** 128 + n for a signal's name; a name without a number here (`SIG40`) carries its own. */
export function exitCodeOfSignal(name: string): number {
  const known = constants.signals[name as keyof typeof constants.signals] as number | undefined;
  const own = /(\d+)$/.exec(name)?.[1];
  return 128 + (known ?? (own === undefined ? 0 : Number(own)));
}
