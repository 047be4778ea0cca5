/**
 * Admission: the limits of all open sandboxes together stay within what the host can give. Places
 * are granted in the order in which they were asked for.
 */

import { CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { Reservation } from "../provider/contract.ts";

/** Requests that wait at once. */
const WAITING_MAX = 10_000;

/** What all sandboxes together may have. */
export interface Capacity {
  readonly memMb: number;
  readonly pids: number;
}

/** A place; `isOpen` once a sandbox is in it. */
interface Place {
  readonly limits: Limits;
  isOpen: boolean;
  isFree: boolean;
}

interface Waiting {
  readonly limits: Limits;
  grant(): void;
}

/** Grants places. */
export class Admission {
  readonly capacity: Capacity;
  readonly #places = new WeakMap<Reservation, Place>();
  readonly #waiting: Waiting[] = [];
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
   * @throws CprgError `failed_precondition` when the limits can never fit, `canceled`
   */
  async reserve(limits: Limits, signal: AbortSignal | undefined): Promise<Reservation> {
    this.#checkPossible(limits);
    if (signal?.aborted) throw cancelled();
    if (this.#waiting.length > 0 || !this.#fits(limits)) await this.#wait(limits, signal);
    else this.#take(limits);
    return this.#place(limits);
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

  #place(limits: Limits): Reservation {
    const place: Place = { limits, isOpen: false, isFree: false };
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
    this.#memMb -= place.limits.mem_mb;
    this.#pids -= place.limits.pids;
    this.#grantNext();
  }

  #fits(limits: Limits): boolean {
    return (
      this.#memMb + limits.mem_mb <= this.capacity.memMb &&
      this.#pids + limits.pids <= this.capacity.pids
    );
  }

  #take(limits: Limits): void {
    this.#memMb += limits.mem_mb;
    this.#pids += limits.pids;
  }

  #grantNext(): void {
    for (;;) {
      const next = this.#waiting[0];
      if (next === undefined || !this.#fits(next.limits)) return;
      this.#waiting.shift();
      this.#take(next.limits);
      next.grant();
    }
  }

  async #wait(limits: Limits, signal: AbortSignal | undefined): Promise<void> {
    if (this.#waiting.length >= WAITING_MAX) {
      throw new CprgError("resource_exhausted", "Cannot wait for a sandbox: too many wait", {
        reason: "QUEUE_FULL",
        retryable: true,
      });
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = { limits, grant: resolve };
    const onAbort = (): void => {
      const index = this.#waiting.indexOf(waiting);
      if (index < 0) return;
      this.#waiting.splice(index, 1);
      reject(cancelled());
      // Whoever stood behind a large request may fit now.
      this.#grantNext();
    };
    this.#waiting.push(waiting);
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
