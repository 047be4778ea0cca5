/** How the end of any run is sent: a job's and an exec's alike (server.md). */

import type { LimitHit, Outcome, Usage, Violation } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";

/** What an outcome says; all is null before the end. */
export interface OutcomeView {
  readonly exit_code: number | null;
  readonly signal: string | null;
  readonly reason: Reason | null;
  readonly usage: Usage | null;
  /** Why it could not run. */
  readonly error?: NonNullable<Outcome["error"]>;
}

/** The view of an outcome, or of none yet. */
export function outcomeView(outcome: Outcome | null): OutcomeView {
  return {
    exit_code: outcome?.exitCode ?? null,
    signal: outcome?.signal ?? null,
    reason: outcome?.reason ?? null,
    usage: outcome?.usage ?? null,
    ...(outcome?.error === undefined ? {} : { error: outcome.error }),
  };
}

/** What a result has beside whose it is. */
export interface RunResultView extends OutcomeView {
  readonly duration_ms: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** The exact bytes, present only where they are no UTF-8. */
  readonly stdout_base64?: string;
  readonly stderr_base64?: string;
  readonly truncated: boolean;
  readonly violations: readonly Violation[];
  readonly limits_hit: readonly LimitHit[];
}
