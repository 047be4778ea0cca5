/**
 * How many answers may be under way whose clients set the pace: WebSockets, event streams, replays,
 * results and files. Each holds a reader and what it has read.
 */

import { CprgError } from "../core/errors.ts";

/** Streams at once. */
export const STREAMS_MAX = 1000;
/** Streams of one tenant at once, so that none takes them all. */
export const STREAMS_TENANT_MAX = 250;
const STREAMS_RETRY_SECONDS = 5;

/** A place that is held. */
export interface StreamPlace {
  /** Gives it back; again does nothing. */
  giveBack(): void;
}

/** Counts the places, in all and for each tenant. */
export class StreamPlaces {
  readonly #max: number;
  readonly #tenantMax: number;
  readonly #byTenant = new Map<string, number>();
  #taken = 0;

  constructor(max = STREAMS_MAX, tenantMax = STREAMS_TENANT_MAX) {
    this.#max = max;
    this.#tenantMax = tenantMax;
  }

  /** @throws CprgError `unavailable` with reason STREAMS_FULL when there is none */
  take(tenant: string): StreamPlace {
    const own = this.#byTenant.get(tenant) ?? 0;
    if (this.#taken >= this.#max) throw tooMany(`${this.#max} streams are open`);
    if (own >= this.#tenantMax) throw tooMany(`tenant "${tenant}" has ${own} streams open`);
    this.#taken += 1;
    this.#byTenant.set(tenant, own + 1);
    let isHeld = true;
    return {
      giveBack: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#giveBack(tenant);
      },
    };
  }

  #giveBack(tenant: string): void {
    const own = (this.#byTenant.get(tenant) ?? 0) - 1;
    this.#taken -= 1;
    if (own > 0) this.#byTenant.set(tenant, own);
    else this.#byTenant.delete(tenant);
  }
}

function tooMany(state: string): CprgError {
  return new CprgError("unavailable", `Cannot stream: ${state}`, {
    reason: "STREAMS_FULL",
    retryAfterSeconds: STREAMS_RETRY_SECONDS,
  });
}
