/**
 * Reading pages of logs, a few at once. Readers by the hundred would otherwise have the store read for
 * all of them in one go: whatever else is asked of it would come after, and all pages be held at once.
 */

import type { Subject } from "../core/event.ts";
import { GarbageCount, type GarbageOptions } from "../core/garbage.ts";
import type { EventLine, EventLog } from "../store/contract.ts";

/** Pages that are read at once from one store. */
export const PAGE_READS_MAX = 4;
/** Most lines and about how many bytes a reader of a log holds at once. */
export const LOG_PAGE = { limit: 256, maxBytes: 32 * 1024 } as const;

/** Bounds of one page. */
export interface PageBounds {
  readonly limit: number;
  readonly maxBytes: number;
}

const GARBAGE: GarbageOptions = { everyBytes: 8 * 1024 * 1024, isAwaited: false };

type Reads = Pick<EventLog, "read">;

/** One page of a log, as `EventLog.read`, when it is this reader's turn: first come, first served. */
export async function readPage(
  events: Reads,
  subject: Subject,
  { fromSeq, ...bounds }: PageBounds & { readonly fromSeq: number },
): Promise<readonly EventLine[]> {
  const turns = turnsOf(events);
  await turns.enter();
  try {
    const page = await events.read(subject, fromSeq, bounds);
    for (const { line } of page) turns.garbage.add(line.length);
    return page;
  } finally {
    turns.leave();
  }
}

const TURNS = new WeakMap<Reads, Turns>();

function turnsOf(events: Reads): Turns {
  const turns = TURNS.get(events) ?? new Turns();
  TURNS.set(events, turns);
  return turns;
}

/** Lets so many in at once; as many wait as there are readers, which have a bound of their own. */
class Turns {
  readonly garbage = new GarbageCount(GARBAGE);
  readonly #waiting: (() => void)[] = [];
  #inside = 0;

  async enter(): Promise<void> {
    if (this.#inside >= PAGE_READS_MAX) {
      // Whoever leaves hands its turn on.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
      return;
    }
    this.#inside += 1;
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#inside -= 1;
    else next();
  }
}
