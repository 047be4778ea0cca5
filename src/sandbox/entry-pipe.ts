/** From a sink that is pushed to, to a stream that is pulled from: one piece is on its way at most. */

import type { EntryPart, EntrySink } from "../provider/contract.ts";

/**
 * The entries that `take` hands to its sink, as they are asked for. Whoever stops reading aborts the
 * signal, and `take` with it.
 *
 * @throws what `take` throws
 */
export async function* pulledEntries(
  take: (sink: EntrySink, signal: AbortSignal) => Promise<void>,
): AsyncGenerator<EntryPart> {
  const abort = new AbortController();
  const hand = new Handover();
  const taken = take(hand.sink, abort.signal).then(
    () => hand.end(null),
    (error: unknown) => hand.end({ error }),
  );
  try {
    for (let part = await hand.next(); part !== null; part = await hand.next()) yield part;
  } finally {
    abort.abort();
    hand.letGo();
    await taken;
  }
}

/** One piece at a time, from one side to the other. */
class Handover {
  #part: EntryPart | null = null;
  #taken: (() => void) | null = null;
  #come: (() => void) | null = null;
  #end: { readonly failure: { readonly error: unknown } | null } | null = null;
  #isLetGo = false;
  readonly sink: EntrySink = {
    entry: (head) => this.#give(head),
    content: (bytes) => this.#give(bytes),
  };

  /** The next piece; null at the end. @throws what ended the other side */
  async next(): Promise<EntryPart | null> {
    this.#taken?.();
    if (this.#part === null && this.#end === null) {
      await new Promise<void>((resolve) => {
        this.#come = resolve;
      });
    }
    const part = this.#part;
    this.#part = null;
    if (part !== null) return part;
    if (this.#end?.failure) throw this.#end.failure.error;
    return null;
  }

  /** The other side has ended; a piece that it still held out is taken back from nobody. */
  end(failure: { readonly error: unknown } | null): void {
    this.#end = { failure };
    this.#come?.();
    this.letGo();
  }

  /** Nobody reads any more: the other side is not held back. */
  letGo(): void {
    this.#isLetGo = true;
    this.#taken?.();
  }

  /** Resolves when the piece has been taken and the next one is asked for. */
  async #give(part: EntryPart): Promise<void> {
    if (this.#isLetGo) return;
    this.#part = part;
    this.#come?.();
    this.#come = null;
    await new Promise<void>((resolve) => {
      this.#taken = resolve;
    });
    this.#taken = null;
  }
}
