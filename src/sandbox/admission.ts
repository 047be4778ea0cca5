/**
 * Admission: the limits of all open sandboxes together stay within what the host can give. Whoever
 * holds the least memory is served first, and each in the order in which it asked. What does not fit
 * yet may be passed by others so many times, and then no more: a large one gets its place too.
 */

import { CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { Reservation, ReserveOptions } from "../provider/contract.ts";

/** Requests that wait at once. */
const WAITING_MAX = 10_000;

/** How often one that waits may be passed by what came later. */
export const PASSED_MAX = 32;

/** For whom a place is asked, unless it is said. */
const NOBODY = "";

/** What all sandboxes together may have. */
export interface Capacity {
  readonly memMb: number;
  readonly pids: number;
}

/** What is asked for. */
export interface Wanted {
  readonly limits: Limits;
  /** Who shares with others: a tenant. */
  readonly tenant: string;
}

/** A place; `isOpen` once a sandbox is in it. */
interface Place extends Wanted {
  isOpen: boolean;
  isFree: boolean;
}

interface Waiting extends Wanted {
  /** How often others were served that came later. */
  passed: number;
  grant(): void;
}

/** Grants places. */
export class Admission {
  readonly capacity: Capacity;
  readonly #places = new WeakMap<Reservation, Place>();
  /** In the order in which they asked. */
  readonly #waiting: Waiting[] = [];
  /** Memory that each tenant holds; none is in it that holds nothing. */
  readonly #held = new Map<string, number>();
  #memMb = 0;
  #pids = 0;

  constructor(capacity: Capacity) {
    this.capacity = capacity;
  }

  /** What is granted now, and how many wait. */
  get state(): { readonly memMb: number; readonly pids: number; readonly waiting: number } {
    return { memMb: this.#memMb, pids: this.#pids, waiting: this.#waiting.length };
  }

  /** The same as an engine says it of itself, with what there is in all. */
  get status(): {
    readonly capacity: Capacity;
    readonly reserved: Capacity;
    readonly waiting: number;
  } {
    const { memMb, pids, waiting } = this.state;
    return { capacity: this.capacity, reserved: { memMb, pids }, waiting };
  }

  /**
   * Waits for a place.
   *
   * @param options `tenant` for whom; the signal ends the wait
   * @throws CprgError `failed_precondition` when the limits can never fit, `canceled`
   */
  async reserve(limits: Limits, options: ReserveOptions = {}): Promise<Reservation> {
    const { signal, tenant = NOBODY } = options;
    this.#checkPossible(limits);
    if (signal?.aborted) throw cancelled();
    const wanted = { limits, tenant };
    if (this.#waiting.length > 0 || !this.#fits(limits)) await this.#wait(wanted, signal);
    else this.#take(wanted);
    return this.#place(wanted);
  }

  /**
   * Marks that a sandbox is being opened in a place.
   *
   * @returns gives the place back; idempotent
   * @throws CprgError when the place is not ours, or used up
   */
  occupy(reservation: Reservation): () => void {
    const place = this.#places.get(reservation);
    if (place === undefined || place.isOpen || place.isFree) {
      throw new CprgError("failed_precondition", "Cannot open a sandbox: its place is used up");
    }
    place.isOpen = true;
    return () => this.#free(place);
  }

  #place({ limits, tenant }: Wanted): Reservation {
    const place: Place = { limits, tenant, isOpen: false, isFree: false };
    const reservation: Reservation = {
      limits,
      cancel: () => {
        if (!place.isOpen) this.#free(place);
      },
    };
    this.#places.set(reservation, place);
    return reservation;
  }

  #free(place: Place): void {
    if (place.isFree) return;
    place.isFree = true;
    this.#count(place, -1);
    this.#grantNext();
  }

  #fits(limits: Limits): boolean {
    return (
      this.#memMb + limits.mem_mb <= this.capacity.memMb &&
      this.#pids + limits.pids <= this.capacity.pids
    );
  }

  #take(wanted: Wanted): void {
    this.#count(wanted, 1);
  }

  #count({ limits, tenant }: Wanted, sign: 1 | -1): void {
    this.#memMb += sign * limits.mem_mb;
    this.#pids += sign * limits.pids;
    const held = (this.#held.get(tenant) ?? 0) + sign * limits.mem_mb;
    if (held > 0) this.#held.set(tenant, held);
    else this.#held.delete(tenant);
  }

  #grantNext(): void {
    for (;;) {
      const next = this.#next();
      if (next === null) return;
      const index = this.#waiting.indexOf(next);
      for (const earlier of this.#waiting.slice(0, index)) earlier.passed += 1;
      this.#waiting.splice(index, 1);
      this.#take(next);
      next.grant();
    }
  }

  /** Who is served now; null when nobody can be, or when one that was passed too often waits. */
  #next(): Waiting | null {
    const heads = new Map<string, Waiting>();
    for (const waiting of this.#waiting) {
      if (waiting.passed >= PASSED_MAX) return this.#fits(waiting.limits) ? waiting : null;
      if (!heads.has(waiting.tenant)) heads.set(waiting.tenant, waiting);
    }
    const held = ({ tenant }: Waiting): number => this.#held.get(tenant) ?? 0;
    // Sorting keeps the order of arrival among equals.
    const inTurn = [...heads.values()].sort((a, b) => held(a) - held(b));
    return inTurn.find(({ limits }) => this.#fits(limits)) ?? null;
  }

  async #wait({ limits, tenant }: Wanted, signal: AbortSignal | undefined): Promise<void> {
    if (this.#waiting.length >= WAITING_MAX) {
      throw new CprgError("resource_exhausted", "Cannot wait for a sandbox: too many wait", {
        reason: "QUEUE_FULL",
        retryable: true,
      });
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = { limits, tenant, passed: 0, grant: resolve };
    const onAbort = (): void => {
      const index = this.#waiting.indexOf(waiting);
      if (index < 0) return;
      this.#waiting.splice(index, 1);
      reject(cancelled());
      // Whoever stood behind a large request may fit now.
      this.#grantNext();
    };
    this.#waiting.push(waiting);
    this.#grantNext();
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      await promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #checkPossible(limits: Limits): void {
    const { memMb, pids } = this.capacity;
    const [name, value, most] =
      limits.mem_mb > memMb ? ["mem_mb", limits.mem_mb, memMb] : ["pids", limits.pids, pids];
    if (value <= most) return;
    throw new CprgError(
      "failed_precondition",
      `Cannot run with limits.${name} ${value}: this host gives all sandboxes together ${most}`,
      {
        field: `limits.${name}`,
        reason: "CAPACITY",
        hint: `Lower limits.${name}, or run on a larger host`,
      },
    );
  }
}

function cancelled(): CprgError {
  return new CprgError("canceled", "Cannot wait for a sandbox: cancelled");
}
