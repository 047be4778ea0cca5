/** How a run ended and what it did on the way: data, never an exception. */

import type { LimitName } from "./limits.ts";
import { type Reason, statusOf, type TerminalStatus } from "./reasons.ts";

/** A limit that was hit: which, its value, what was seen, and whether by sampling. */
export interface LimitHit {
  readonly limit: LimitName;
  readonly value: number;
  readonly observed: number;
  readonly sampled: boolean;
}

/** A call that the sandbox refused and named. */
export interface Violation {
  readonly type: "seccomp_violation";
  readonly syscall?: string;
  readonly nr?: number;
  readonly arch?: string;
}

/** What a run used. Counters come from the cgroup where there is one, else from wait4. */
export interface Usage {
  /** CPU time of all processes, in milliseconds. */
  readonly cpu_ms: number;
  /** Peak memory, in bytes; null where the host has no counter. */
  readonly memory_peak_bytes: number | null;
  /** Most processes at once as sampled, or null. */
  readonly pids_peak: number | null;
}

/** How a run ended. */
export interface Outcome {
  /** Null when a signal ended it, or when it never ran. */
  readonly exitCode: number | null;
  /** `SIGKILL`, … or null. */
  readonly signal: string | null;
  readonly reason: Reason;
  readonly limitsHit: readonly LimitHit[];
  readonly violations: readonly Violation[];
  readonly usage: Usage | null;
  readonly durationMs: number;
  /** Processes that had to be killed because they outlived the main program. */
  readonly killed: number;
  /** Why it could not run, where `reason` says so. */
  readonly error?: { readonly message: string; readonly step?: string; readonly hint?: string };
}

/** The status of a finished job's outcome. */
export function outcomeStatus(outcome: Outcome): TerminalStatus {
  return statusOf(outcome.reason, outcome.exitCode);
}
