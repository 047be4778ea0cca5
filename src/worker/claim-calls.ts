/**
 * The calls of one claim that are no programs. They end with it, with `failed_precondition`
 * NOT_CLAIMED, and its place is taken away when they have ended (PROTOCOL.md section 8).
 */

import type { CallContext } from "../bridge/contract.ts";
import { CprgError } from "../core/errors.ts";

/** Calls that are being answered. */
export class ClaimCalls {
  readonly #ending: AbortSignal;
  readonly #open = new Set<Promise<void>>();

  /** @param ending aborted, with the CprgError for its calls, when the claim ends */
  constructor(ending: AbortSignal) {
    this.#ending = ending;
  }

  /** Binds a call to the claim until it is disposed of, which the handler does at its end. */
  begin(context: Pick<CallContext, "giveUp">): Disposable {
    const ended = Promise.withResolvers<void>();
    const giveUp = (): void => context.giveUp(CprgError.from(this.#ending.reason));
    this.#ending.addEventListener("abort", giveUp);
    this.#open.add(ended.promise);
    return {
      [Symbol.dispose]: () => {
        this.#ending.removeEventListener("abort", giveUp);
        this.#open.delete(ended.promise);
        ended.resolve();
      },
    };
  }

  /** Resolves when every call has ended that is open now. */
  async settled(): Promise<void> {
    await Promise.all(this.#open);
  }
}
