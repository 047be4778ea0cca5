/**
 * Whose turn it is: tenants with the least running come first, and among those the one that was
 * served longest ago. So a long queue of one tenant costs another at most the end of one job.
 */

import type { TenantShare } from "../store/contract.ts";

/** Tenants whose last turn is remembered; the others count as served never. */
export const TURNS_REMEMBERED_MAX = 256;

/** Turns of tenants. */
export class TenantTurns {
  /** Served longest ago first. */
  readonly #turns = new Map<string, number>();
  #turn = 0;

  /** A tenant was given a place. */
  served(tenant: string): void {
    this.#turn += 1;
    this.#turns.delete(tenant);
    this.#turns.set(tenant, this.#turn);
    if (this.#turns.size <= TURNS_REMEMBERED_MAX) return;
    for (const oldest of this.#turns.keys()) {
      this.#turns.delete(oldest);
      return;
    }
  }

  /** @param held tenants that hold places, once for each place */
  shares(held: readonly string[]): TenantShare[] {
    const counts = new Map<string, number>();
    for (const tenant of held) counts.set(tenant, (counts.get(tenant) ?? 0) + 1);
    return [...new Set([...this.#turns.keys(), ...counts.keys()])].map((tenant) => ({
      tenant,
      share: counts.get(tenant) ?? 0,
      turn: this.#turns.get(tenant) ?? 0,
    }));
  }
}
