/** The shapes in which sandboxes and execs are sent: snake_case, RFC 3339 times. */

import { timestamp } from "../core/clock.ts";
import type { ExecRecord } from "../core/exec.ts";
import type { Limits } from "../core/limits.ts";
import type { Placement } from "../core/placement.ts";
import type { Reason } from "../core/reasons.ts";
import type { SandboxRecord } from "../core/sandbox.ts";
import { type OutcomeView, outcomeView } from "../record/outcome-view.ts";

/** A sandbox as clients see it. */
export interface SandboxView {
  readonly sandbox_id: string;
  readonly tenant: string;
  readonly status: "open" | "ended";
  readonly reason: Reason | null;
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  readonly placement: Placement | null;
  readonly worker_id: string | null;
  readonly idle_seconds: number;
  readonly lifetime_seconds: number;
  readonly created_at: string;
  /** When it ends at the latest. */
  readonly expires_at: string;
  readonly ended_at: string | null;
}

/** The view of a sandbox. */
export function sandboxView(sandbox: SandboxRecord): SandboxView {
  const { createdAt, endedAt, lifetimeSeconds } = sandbox;
  return {
    sandbox_id: sandbox.id,
    tenant: sandbox.tenant,
    status: endedAt === null ? "open" : "ended",
    reason: sandbox.reason,
    limits: sandbox.limits,
    labels: sandbox.labels,
    placement: sandbox.placement,
    worker_id: sandbox.workerId,
    idle_seconds: sandbox.idleSeconds,
    lifetime_seconds: lifetimeSeconds,
    created_at: timestamp(createdAt),
    expires_at: timestamp(createdAt + lifetimeSeconds * 1000),
    ended_at: endedAt === null ? null : timestamp(endedAt),
  };
}

/** An exec as clients see it. */
export interface ExecView extends OutcomeView {
  readonly exec_id: string;
  readonly sandbox_id: string;
  readonly tenant: string;
  readonly status: ExecRecord["status"];
  readonly argv: readonly string[];
  readonly tty: boolean;
  readonly created_at: string;
  readonly finished_at: string | null;
  readonly limits: Limits;
}

/** The view of an exec. */
export function execView(exec: ExecRecord): ExecView {
  return {
    exec_id: exec.id,
    sandbox_id: exec.sandboxId,
    tenant: exec.tenant,
    status: exec.status,
    argv: exec.argv,
    tty: exec.hasTerminal,
    created_at: timestamp(exec.createdAt),
    finished_at: exec.finishedAt === null ? null : timestamp(exec.finishedAt),
    ...outcomeView(exec.outcome),
    limits: exec.limits,
  };
}

/** The fields of an exec's result that need no output; all but status are null before the end. */
export function execResultHead({ id, sandboxId, status, outcome }: ExecRecord) {
  const duration_ms = outcome?.durationMs ?? null;
  return { exec_id: id, sandbox_id: sandboxId, status, ...outcomeView(outcome), duration_ms };
}
