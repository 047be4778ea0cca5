/**
 * Workers that are asked for by others than tasks: sandboxes and jobs. They wait in the same turns as
 * tasks, and what they hold counts as their tenants' claims.
 */

import { CprgError } from "../core/errors.ts";
import type { WorkerSlot } from "./registered-worker.ts";
import type { Waiting } from "./scheduler.ts";

/** A slot that is kept for a lease. */
export interface LeaseSlot {
  readonly slot: WorkerSlot;
  /** The lease has ended, or was not made: it counts no more. Idempotent. */
  release(): void;
}

interface Asked {
  readonly request: Waiting;
  readonly give: (slot: LeaseSlot) => void;
  readonly refuse: (error: unknown) => void;
}

/** Requests that wait, and leases that are held. */
export class LeaseRequests {
  readonly #onReleased: () => void;
  readonly #asked = new Map<string, Asked>();
  readonly #held = new Set<{ readonly tenant: string }>();

  /** @param onReleased a tenant may have another */
  constructor(onReleased: () => void) {
    this.#onReleased = onReleased;
  }

  /** The tenant of each lease that is held. */
  get holders(): readonly string[] {
    return [...this.#held].map(({ tenant }) => tenant);
  }

  /** Those that wait and the tasks that do, oldest first. */
  among(tasks: readonly Waiting[]): readonly Waiting[] {
    if (this.#asked.size === 0) return tasks;
    const own = [...this.#asked.values()].map(({ request }) => request);
    return [...own, ...tasks].sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
  }

  /** Waits for a slot. @throws what it is refused with; the signal's reason */
  ask(request: Waiting, signal?: AbortSignal): Promise<LeaseSlot> {
    const { id } = request;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#asked.delete(id);
        reject(signal?.reason);
      };
      if (signal?.aborted) return leave();
      if (this.#asked.has(id)) {
        return reject(new CprgError("already_exists", `Cannot place "${id}": it waits already`));
      }
      const settled = (): void => {
        this.#asked.delete(id);
        signal?.removeEventListener("abort", leave);
      };
      signal?.addEventListener("abort", leave, { once: true });
      this.#asked.set(id, {
        request,
        give: (slot) => {
          settled();
          resolve(slot);
        },
        refuse: (error) => {
          settled();
          reject(error);
        },
      });
    });
  }

  /** Gives a slot to a request; one that has left gives it back. */
  give(id: string, slot: WorkerSlot): void {
    const asked = this.#asked.get(id);
    if (asked === undefined) {
      slot.cancel();
      return;
    }
    const lease = { tenant: asked.request.tenant };
    this.#held.add(lease);
    asked.give({
      slot,
      release: () => {
        slot.cancel();
        if (this.#held.delete(lease)) this.#onReleased();
      },
    });
  }

  /** Ends every wait. */
  refuse(error: CprgError): void {
    for (const asked of [...this.#asked.values()]) asked.refuse(error);
  }
}
