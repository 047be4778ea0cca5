/** How much more a sender of items may send, and which of its items have been consumed (section 6). */

import { CREDIT_BYTES, ITEM_COST_BYTES } from "./limits.ts";

/** What an item costs. */
export function itemCost(payload: Uint8Array): number {
  return payload.length + ITEM_COST_BYTES;
}

/** Credit of one direction of one call, on the sender's side. */
export class SendCredit {
  #balance = CREDIT_BYTES;
  /** Costs of items that are not acknowledged, oldest first; bounded, as each costs some credit. */
  readonly #costs: number[] = [];
  /** Granted bytes that cover no item yet. */
  #covered = 0;
  #acknowledged = 0;
  #listener: ((items: number) => void) | undefined;
  #wake: (() => void) | undefined;
  readonly #signal: AbortSignal;

  /** @param signal ends every wait for credit */
  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#wake?.(), { once: true });
  }

  get acknowledgedItems(): number {
    return this.#acknowledged;
  }

  onAcknowledged(listener: (items: number) => void): void {
    this.#listener = listener;
  }

  /**
   * Resolves when an item may be sent. One waiter at a time.
   *
   * @throws the signal's reason when it aborts first
   */
  async available(): Promise<void> {
    this.#signal.throwIfAborted();
    while (this.#balance <= 0) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#signal.throwIfAborted();
    }
  }

  spend(payload: Uint8Array): void {
    const cost = itemCost(payload);
    this.#balance -= cost;
    this.#costs.push(cost);
    this.#acknowledge();
  }

  /**
   * Takes a grant. A peer that grants more than was sent acknowledges items before it has them: that
   * harms only itself, and must not leave them unacknowledged for ever, which would hold the sender.
   */
  grant(bytes: number): void {
    this.#balance = Math.min(this.#balance + bytes, Number.MAX_SAFE_INTEGER);
    this.#covered = Math.min(this.#covered + bytes, Number.MAX_SAFE_INTEGER);
    this.#acknowledge();
    if (this.#balance > 0) this.#wake?.();
  }

  #acknowledge(): void {
    const before = this.#acknowledged;
    while ((this.#costs[0] ?? Number.POSITIVE_INFINITY) <= this.#covered) {
      const cost = this.#costs.shift() ?? 0;
      this.#covered -= cost;
      this.#acknowledged += 1;
    }
    if (this.#acknowledged > before) this.#listener?.(this.#acknowledged);
  }
}
