/** One program that a client ran in a sandbox of its own, as it is kept beside its log. */

import type { Limits } from "./limits.ts";
import { type Outcome, outcomeStatus } from "./outcome.ts";
import type { Status, TerminalStatus } from "./reasons.ts";

/** An exec, running or ended. */
export interface ExecRecord {
  readonly id: string;
  readonly sandboxId: string;
  readonly tenant: string;
  readonly status: Exclude<Status, "queued">;
  readonly argv: readonly string[];
  readonly hasTerminal: boolean;
  /** Effective limits: the sandbox's, with this exec's own. */
  readonly limits: Limits;
  readonly createdAt: number;
  readonly finishedAt: number | null;
  /** The instance of the server that runs it. */
  readonly instance: string;
  readonly outcome: Outcome | null;
}

/** An exec that has ended. */
export type EndedExec = ExecRecord & {
  readonly status: TerminalStatus;
  readonly finishedAt: number;
  readonly outcome: Outcome;
};

/** The exec after its end; pure. */
export function endExec(exec: ExecRecord, outcome: Outcome, at: number): EndedExec {
  return { ...exec, status: outcomeStatus(outcome), finishedAt: at, outcome };
}
