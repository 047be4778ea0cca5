/** A sandbox on a worker: which is asked for, how long it is waited for, and what is said when none comes. */

import { CprgError } from "../core/errors.ts";
import type { LimitName } from "../core/limits.ts";
import {
  noWorkers,
  type PlacementRequest,
  type WorkerClaim,
  type WorkerPool,
} from "../provider/placement.ts";
import type { SandboxSpec } from "./spec.ts";

const RETRY_SECONDS = 5;

/** Limits that hold on every worker: the time is every worker's, the output is cut here. */
export const LIMITS_EVERYWHERE: readonly LimitName[] = ["wall_seconds", "output_kb"];

/** What is to be placed. */
export interface PlacedSandbox {
  readonly id: string;
  readonly tenant: string;
  readonly spec: SandboxSpec;
  readonly createdAt: number;
}

/**
 * Claims a worker for a sandbox.
 *
 * @param options `waitMs`: how long one that would do is waited for; `signal`: its reason is thrown
 * @throws CprgError `failed_precondition` NO_WORKERS where there can be none; `unavailable`
 *   NO_WORKER_MATCHES at once, ALL_BUSY and TENANT_LIMIT after the wait; what a worker refuses with
 */
export async function claimWorker(
  pool: WorkerPool | undefined,
  sandbox: PlacedSandbox,
  { waitMs, signal }: { readonly waitMs: number; readonly signal: AbortSignal },
): Promise<WorkerClaim> {
  if (pool === undefined) throw noWorkers("open a sandbox");
  const request = requestOf(sandbox);
  const why = pool.waiting(request);
  // Whoever waits for a worker that may never come is better told at once.
  if (why?.code === "no_worker_matches") throw notPlaced(why);
  const late = AbortSignal.timeout(waitMs);
  const { limits } = sandbox.spec;
  try {
    return await pool.claim(request, { limits, signal: AbortSignal.any([late, signal]) });
  } catch (error) {
    if (!late.aborted || signal.aborted) throw error;
    throw notPlaced(pool.waiting(request) ?? LATE);
  }
}

function requestOf({ id, tenant, spec, createdAt }: PlacedSandbox): PlacementRequest {
  const isBounded = spec.askedLimits.some((name) => !LIMITS_EVERYWHERE.includes(name));
  return {
    id,
    tenant,
    placement: spec.placement ?? { labels: {} },
    needs: isBounded ? ["limits"] : [],
    createdAt,
  };
}

const LATE = { code: "all_busy", detail: "no worker has answered in time" } as const;

function notPlaced({ code, detail }: { readonly code: string; readonly detail: string }) {
  return new CprgError("unavailable", `Cannot open a sandbox: ${detail}`, {
    reason: code.toUpperCase(),
    field: "placement",
    retryAfterSeconds: RETRY_SECONDS,
  });
}
