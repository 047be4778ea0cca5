/** Bytes of request bodies that are in memory at once: read, or being parsed. */

import { CprgError } from "../core/errors.ts";

/** Of all tenants together: a body costs several times its size while it is parsed. */
export const BODIES_BYTES_MAX = 96 * 1024 * 1024;
/** Of one tenant, so that none takes it all: two of the largest, and small ones beside. */
export const BODIES_TENANT_BYTES_MAX = 40 * 1024 * 1024;
const BODIES_RETRY_SECONDS = 1;

/** Part of a budget; gives itself back when it goes out of scope. */
export interface BodyShare extends Disposable {
  /**
   * Makes the share at least so large.
   *
   * @throws CprgError `unavailable` with reason BODIES_FULL when there is no room
   */
  grow(bytes: number): void;
}

/** Counts the bytes, in all and for each tenant. */
export class BodyBudget {
  readonly #max: number;
  readonly #tenantMax: number;
  readonly #byTenant = new Map<string, number>();
  #taken = 0;

  constructor(max = BODIES_BYTES_MAX, tenantMax = BODIES_TENANT_BYTES_MAX) {
    this.#max = max;
    this.#tenantMax = tenantMax;
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
    if (this.#taken + bytes > this.#max || own + bytes > this.#tenantMax) throw full();
    this.#taken += bytes;
    this.#byTenant.set(tenant, own + bytes);
  }

  #remove(tenant: string, bytes: number): void {
    const own = (this.#byTenant.get(tenant) ?? 0) - bytes;
    this.#taken -= bytes;
    if (own > 0) this.#byTenant.set(tenant, own);
    else this.#byTenant.delete(tenant);
  }
}

function full(): CprgError {
  return new CprgError("unavailable", "Cannot read body: too many bytes of others are being read", {
    reason: "BODIES_FULL",
    retryAfterSeconds: BODIES_RETRY_SECONDS,
  });
}
