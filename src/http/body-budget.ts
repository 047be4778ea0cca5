/** Bytes of request bodies that are in memory at once: read, or being parsed. */

import { CprgError } from "../core/errors.ts";

/** Of all tenants together: a body costs several times its size while it is parsed. */
export const BODIES_BYTES_MAX = 96 * 1024 * 1024;
/** Of one tenant, so that none takes it all: two of the largest, and small ones beside. */
export const BODIES_TENANT_BYTES_MAX = 40 * 1024 * 1024;
/** Of each tenant, whatever the others take: bodies of the usual size always have room. */
export const BODIES_RESERVE_BYTES = 1024 * 1024;
const BODIES_RETRY_SECONDS = 1;

/** Bounds that tests make small; the constants stand for what is missing. */
export interface BodyBounds {
  readonly bytesMax?: number | undefined;
  readonly tenantBytesMax?: number | undefined;
  readonly reserveBytes?: number | undefined;
}

/** Part of a budget; gives itself back when it goes out of scope. */
export interface BodyShare extends Disposable {
  /**
   * Makes the share at least so large.
   *
   * @throws CprgError `unavailable` with reason BODIES_FULL when there is no room
   */
  grow(bytes: number): void;
}

/** Counts the bytes for each tenant, and in all what is beyond the reserves. */
export class BodyBudget {
  readonly #max: number;
  readonly #tenantMax: number;
  readonly #reserve: number;
  readonly #byTenant = new Map<string, number>();
  /** Beyond the reserves. */
  #shared = 0;

  constructor(bounds: BodyBounds = {}) {
    this.#max = bounds.bytesMax ?? BODIES_BYTES_MAX;
    this.#tenantMax = bounds.tenantBytesMax ?? BODIES_TENANT_BYTES_MAX;
    this.#reserve = bounds.reserveBytes ?? BODIES_RESERVE_BYTES;
  }

  /** An empty share of a tenant. */
  open(tenant: string): BodyShare {
    let held = 0;
    return {
      grow: (bytes) => {
        if (bytes <= held) return;
        this.#add(tenant, bytes - held);
        held = bytes;
      },
      [Symbol.dispose]: () => {
        this.#remove(tenant, held);
        held = 0;
      },
    };
  }

  #add(tenant: string, bytes: number): void {
    const own = this.#byTenant.get(tenant) ?? 0;
    const shared = this.#beyond(own + bytes) - this.#beyond(own);
    const isFull = shared > 0 && this.#shared + shared > this.#max;
    if (isFull || own + bytes > this.#tenantMax) throw full();
    this.#shared += shared;
    this.#byTenant.set(tenant, own + bytes);
  }

  #remove(tenant: string, bytes: number): void {
    const before = this.#byTenant.get(tenant) ?? 0;
    const own = before - bytes;
    this.#shared -= this.#beyond(before) - this.#beyond(own);
    if (own > 0) this.#byTenant.set(tenant, own);
    else this.#byTenant.delete(tenant);
  }

  #beyond(bytes: number): number {
    return Math.max(0, bytes - this.#reserve);
  }
}

function full(): CprgError {
  return new CprgError("unavailable", "Cannot read body: too many bytes of others are being read", {
    reason: "BODIES_FULL",
    retryAfterSeconds: BODIES_RETRY_SECONDS,
  });
}
