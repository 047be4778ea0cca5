/** Outcomes of jobs that did not run, or whose run cannot be vouched for. */

import { CprgError } from "../core/errors.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";

/** The outcome of a job whose program never started. */
export function neverRan(reason: Reason, error?: Outcome["error"]): Outcome {
  return {
    exitCode: null,
    signal: null,
    reason,
    limitsHit: [],
    violations: [],
    usage: null,
    durationMs: 0,
    killed: 0,
    ...(error === undefined ? {} : { error }),
  };
}

/** What of an error belongs into the log of a job: never its cause. */
export function outcomeError(thrown: unknown): NonNullable<Outcome["error"]> {
  const error = CprgError.from(thrown);
  return {
    message: CprgError.is(thrown) ? error.message : "The server failed; its own log has the cause",
    ...(error.setup === undefined ? {} : { step: error.setup.step }),
    ...(error.hint === undefined ? {} : { hint: error.hint }),
  };
}

/** The reason that an error gives to a job that could not be set up. */
export function setupReason(thrown: unknown): Reason {
  switch (CprgError.from(thrown).reason) {
    case "NO_INTERPRETER":
      return "no_interpreter";
    case "DISK_FULL":
      return "disk_full";
    case "WORKER_LOST":
      return "worker_lost";
    default:
      return "setup_failed";
  }
}

/** The outcome of a program whose events could not all be kept: never a success. */
export function notRecorded(outcome: Outcome, thrown: unknown): Outcome {
  const isDiskFull = CprgError.is(thrown) && thrown.reason === "DISK_FULL";
  return {
    ...outcome,
    reason: isDiskFull ? "disk_full" : "runner_error",
    error: outcomeError(thrown),
  };
}
