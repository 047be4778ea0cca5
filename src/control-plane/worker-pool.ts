/** Workers for those who place jobs and sandboxes: claims in turn with tasks, as leases. */

import { CLAIM_LIMITS, JOB_RUN } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import type {
  PlacementRequest,
  PlacementWait,
  WorkerAbility,
  WorkerClaim,
  WorkerClaimOptions,
  WorkerPool,
} from "../provider/placement.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { LeaseSlot } from "./lease-requests.ts";
import { PlacedLease } from "./placed-lease.ts";
import type { Waiting } from "./scheduler.ts";
import type { WorkerRegistry } from "./worker-registry.ts";

/** Workers that are asked for one claim, as for a task. */
export const LEASE_TRIES_MAX = 3;

/** What a worker lists that has an ability. */
const CAPABILITY: Readonly<Record<WorkerAbility, string>> = {
  limits: CLAIM_LIMITS,
  jobs: JOB_RUN.name,
};

/** What it works with. */
export interface ClaimedWorkersOptions {
  readonly dispatcher: Pick<Dispatcher, "lease" | "waitingLease">;
  readonly registry: Pick<WorkerRegistry, "withTtl" | "liveness">;
}

/** Workers that are claimed for one request after the other. */
export class ClaimedWorkers implements WorkerPool {
  readonly #options: ClaimedWorkersOptions;

  constructor(options: ClaimedWorkersOptions) {
    this.#options = options;
  }

  waiting(request: PlacementRequest): PlacementWait | null {
    const why = this.#options.dispatcher.waitingLease(waitingOf(request, []));
    if (why === null || why.code === "no_runner") return null;
    return { code: why.code, detail: why.detail };
  }

  async claim(
    request: PlacementRequest,
    { limits, signal }: WorkerClaimOptions = {},
  ): Promise<WorkerClaim> {
    const avoids: string[] = [];
    for (let epoch = 1; ; epoch += 1) {
      const given = await this.#options.dispatcher.lease(waitingOf(request, avoids), signal);
      const { workerId } = given.slot;
      try {
        return await this.#claim(given, { taskId: request.id, epoch, limits, signal });
      } catch (error) {
        given.release();
        if (signal?.aborted === true) throw signal.reason;
        // One that takes no other claim has tried nothing, and is not asked again until it does.
        const { reason = "" } = CprgError.from(error);
        if (!TAKES_NONE.includes(reason)) avoids.push(workerId);
        if (avoids.length >= LEASE_TRIES_MAX) throw error;
      }
    }
  }

  async #claim(
    { slot, release }: LeaseSlot,
    order: {
      readonly taskId: string;
      readonly epoch: number;
      readonly limits: WorkerClaimOptions["limits"];
      readonly signal: AbortSignal | undefined;
    },
  ): Promise<WorkerClaim> {
    const { registry } = this.#options;
    const { taskId, epoch, limits, signal } = order;
    const { claimTtlSeconds } = registry.liveness;
    const link = await slot.claim(
      registry.withTtl({ taskId, epoch, claimTtlSeconds, limits: { ...limits } }),
      signal,
    );
    link.over.addEventListener("abort", release, { once: true });
    if (link.over.aborted) throw link.over.reason;
    return new PlacedLease(link, slot.workerId);
  }
}

const TAKES_NONE: readonly string[] = ["ALREADY_CLAIMED", "DRAINING"];

function waitingOf(
  { id, tenant, placement, needs, createdAt }: PlacementRequest,
  avoids: readonly string[],
): Waiting {
  const { labels } = placement;
  const capabilities = needs.map((need) => CAPABILITY[need]);
  return { id, tenant, labels, createdAt, avoids: [...avoids], needs: capabilities };
}
