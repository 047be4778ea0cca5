/** A sandbox that a client holds open, as far as it is kept; what runs in it is in memory only. */

import type { Limits } from "./limits.ts";
import type { Placement } from "./placement.ts";
import type { Reason } from "./reasons.ts";

/** A sandbox, open or ended. */
export interface SandboxRecord {
  readonly id: string;
  readonly tenant: string;
  /** Effective limits. */
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  /** What was asked of its worker; null: it is on the server's own host. */
  readonly placement: Placement | null;
  /** The worker that it is on. */
  readonly workerId: string | null;
  /** Longest time without an exec, a transfer or a request before it ends. */
  readonly idleSeconds: number;
  /** Longest time from its start to its end. */
  readonly lifetimeSeconds: number;
  readonly createdAt: number;
  /** Null while it is open. */
  readonly endedAt: number | null;
  readonly reason: SandboxEnd | null;
  /** The instance of the server that holds it. */
  readonly instance: string;
}

/** Why a sandbox ended. */
export type SandboxEnd = Extract<
  Reason,
  "user" | "idle" | "lifetime" | "shutdown" | "interrupted" | "runner_error" | "worker_lost"
>;
