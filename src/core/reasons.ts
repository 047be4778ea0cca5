/** Why a run ended, and the status that follows from it. Both sets are closed. */

/** Machine-readable reason of every end. */
export const REASONS = [
  "exit",
  "signal",
  "user",
  "wall_limit",
  "cpu_limit",
  "oom",
  "output_limit",
  "seccomp_violation",
  "setup_failed",
  "interrupted",
  "shutdown",
  "idle",
  "lifetime",
  "worker_lost",
  "stale_epoch",
  "claim_failed",
  "runner_error",
  "result_not_serializable",
  "quarantined",
  "disk_full",
  "no_interpreter",
] as const;

/** One of {@link REASONS}. */
export type Reason = (typeof REASONS)[number];

/** Every status a job can have. */
export const STATUSES = [
  "queued",
  "running",
  "succeeded",
  "failed",
  "timed_out",
  "oom_killed",
  "cancelled",
  "error",
] as const;

/** One of {@link STATUSES}. */
export type Status = (typeof STATUSES)[number];

/** A status that never changes again. */
export type TerminalStatus = Exclude<Status, "queued" | "running">;

/** Whether a status is final. */
export function isTerminal(status: Status): status is TerminalStatus {
  return status !== "queued" && status !== "running";
}

/**
 * The status that a reason means.
 *
 * @param reason why the run ended
 * @param exitCode the program's exit code, or null when a signal ended it or it never ran
 */
export function statusOf(reason: Reason, exitCode: number | null): TerminalStatus {
  switch (reason) {
    case "exit":
      return exitCode === 0 ? "succeeded" : "failed";
    case "signal":
    case "seccomp_violation":
      return "failed";
    case "wall_limit":
    case "cpu_limit":
      return "timed_out";
    case "oom":
      return "oom_killed";
    case "user":
      return "cancelled";
    default:
      return "error";
  }
}
