/** Leases on workers: what those who place jobs and sandboxes need of a control plane. */

import { CprgError } from "../core/errors.ts";
import type { EventDraft, OutputBytes } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import type { Limits } from "../core/limits.ts";
import type { Placement } from "../core/placement.ts";
import type { HeldLease } from "./contract.ts";

/** What a worker has to be able to do: limits of its claims, jobs in a sandbox of their own. */
export type WorkerAbility = "limits" | "jobs";

/** A worker that is asked for. */
export interface PlacementRequest {
  /** Of what is placed: the claim's task. */
  readonly id: string;
  readonly tenant: string;
  readonly placement: Placement;
  readonly needs: readonly WorkerAbility[];
  /** Those that have waited longest go first, within a tenant. */
  readonly createdAt: number;
}

/** Why a request waits, and what would help, for people. */
export interface PlacementWait {
  readonly code: "no_worker_matches" | "all_busy" | "tenant_limit";
  readonly detail: string;
}

/** How a worker is claimed. */
export interface WorkerClaimOptions {
  /** Asked for of workers that can enforce them. */
  readonly limits?: Limits;
  /** Ends the wait, and gives the claim up. */
  readonly signal?: AbortSignal;
}

/** Workers as those see them who place something on one. */
export interface WorkerPool {
  /** Why a request would wait, as things stand now; null: it need not. */
  waiting(request: PlacementRequest): PlacementWait | null;
  /**
   * Claims a worker of the tenant, or a shared one, that has the labels and the abilities; waits until
   * one is free and it is the tenant's turn.
   *
   * @throws CprgError what the last of several workers refused the claim with; the signal's reason
   */
  claim(request: PlacementRequest, options?: WorkerClaimOptions): Promise<WorkerClaim>;
}

/** An event of a job on a worker. */
export interface WorkerJobEvent {
  /** By the worker's clock. */
  readonly at: number;
  readonly draft: EventDraft | OutputBytes;
}

/** A worker that is claimed, as a lease; its release is the claim's. */
export interface WorkerClaim extends HeldLease {
  readonly workerId: string;
  /** In force for all of it together; null: the worker enforces none. */
  readonly limits: Limits | null;
  /** Aborted, with the CprgError that says why, when it has ended, also by itself. */
  readonly gone: AbortSignal;
  /**
   * Runs a job in a sandbox of its own; `finished` is the last event. Leaving the loop, or the signal,
   * cancels it.
   *
   * @throws CprgError what the worker refuses with; `canceled` when nothing of it runs any more;
   *   `unavailable` when the worker is lost; `data_loss` for events that are none
   */
  runJob(spec: JobSpec, options?: { readonly signal?: AbortSignal }): AsyncIterable<WorkerJobEvent>;
}

/** The error of a server that can place nothing: it has no workers. @param what a verb phrase */
export function noWorkers(what: string): CprgError {
  return new CprgError(
    "failed_precondition",
    `Cannot ${what} on a worker: this server listens for none`,
    {
      reason: "NO_WORKERS",
      field: "placement",
      hint: "Leave placement out, or start the server with --bridge-addr",
    },
  );
}
