/** What the feed knows of one log while somebody reads it: a short tail and who waits for more. */

import { isTerminalLine } from "../core/chain.ts";
import type { EventLine } from "../store/contract.ts";
import type { PageBounds } from "./page-reads.ts";

/** Most lines that a tail keeps. */
export const TAIL_LINES_MAX = 512;
/** About how many bytes a tail keeps. */
export const TAIL_BYTES_MAX = 512 * 1024;
/** About how many bytes all tails together keep. */
export const TAILS_BYTES_MAX = 32 * 1024 * 1024;

/** Bytes of all tails, counted in one place so that many logs stay bounded too. */
export interface TailBudget {
  usedBytes: number;
}

/** Where one reader stands. */
export interface TopicReader {
  /** The sequence number that it reads next. */
  next: number;
}

/** One log that is being read. */
export class Topic {
  readonly #readers = new Set<TopicReader>();
  readonly #budget: TailBudget;
  readonly #waiters = new Set<() => void>();
  /** Consecutive lines, the newest last. */
  #tail: EventLine[] = [];
  #tailBytes = 0;
  /** Whether the tail's last line is the newest that was committed here, and more may come. */
  #isTailNewest = false;
  #version = 0;

  constructor(budget: TailBudget) {
    this.#budget = budget;
  }

  /** Whether it has any; a topic without is dropped. */
  get hasReaders(): boolean {
    return this.#readers.size > 0;
  }

  /** Whether the next lines would be read from the tail: somebody waits for them, or is within it. */
  get isFollowed(): boolean {
    if (this.#waiters.size > 0) return true;
    const oldest = this.#tail[0];
    if (oldest === undefined) return false;
    return [...this.#readers].some(({ next }) => next >= oldest.seq);
  }

  /** A new reader from `next` on. */
  join(next: number): TopicReader {
    const reader = { next };
    this.#readers.add(reader);
    return reader;
  }

  leave(reader: TopicReader): void {
    this.#readers.delete(reader);
  }

  /** Rises with every commit. Taken before a read, it tells whether more came since. */
  get version(): number {
    return this.#version;
  }

  /** Takes lines that were committed, and wakes who waits. */
  push(lines: readonly EventLine[]): void {
    const first = lines[0];
    if (first === undefined) return;
    const newest = this.#tail.at(-1);
    if (newest !== undefined && newest.seq + 1 !== first.seq) this.#clearTail();
    for (const line of lines) this.#add(line);
    this.#trim();
    const last = this.#tail.at(-1);
    this.#isTailNewest = last !== undefined && !isTerminalLine(last.line);
    this.#wake();
  }

  /** Takes note of lines that were committed elsewhere, and wakes who waits. */
  advance(): void {
    this.#clearTail();
    this.#wake();
  }

  /**
   * Lines from `seq` on, out of the tail.
   *
   * @returns null when only the store can tell; no line when none was committed yet
   */
  read(seq: number, bounds: PageBounds): readonly EventLine[] | null {
    const oldest = this.#tail[0];
    const newest = this.#tail.at(-1);
    if (oldest === undefined || newest === undefined) return null;
    if (seq > newest.seq) return this.#isTailNewest ? [] : null;
    if (seq < oldest.seq) return null;
    return firstPage(this.#tail, seq - oldest.seq, bounds);
  }

  /** Resolves when the version is no longer `seen`, or the signal is aborted. */
  changed(seen: number, signal: AbortSignal): Promise<void> {
    if (this.#version !== seen || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiters.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#waiters.add(done);
      signal.addEventListener("abort", done);
    });
  }

  /** Gives back what the tail takes of the budget. */
  drop(): void {
    this.#clearTail();
  }

  #add(line: EventLine): void {
    this.#tail.push(line);
    this.#count(line.line.length);
  }

  /** Forgets old lines; all of them when the tails of other logs leave no room. */
  #trim(): void {
    if (this.#budget.usedBytes > TAILS_BYTES_MAX) {
      this.#clearTail();
      return;
    }
    let drop = Math.max(0, this.#tail.length - TAIL_LINES_MAX);
    let bytes = this.#tailBytes;
    for (const [index, { line }] of this.#tail.entries()) {
      if (index >= drop && bytes <= TAIL_BYTES_MAX) break;
      bytes -= line.length;
      drop = Math.max(drop, index + 1);
    }
    this.#tail.splice(0, drop);
    this.#count(bytes - this.#tailBytes);
  }

  #clearTail(): void {
    this.#tail = [];
    this.#count(-this.#tailBytes);
  }

  #count(bytes: number): void {
    this.#tailBytes += bytes;
    this.#budget.usedBytes += bytes;
  }

  #wake(): void {
    this.#version += 1;
    for (const done of [...this.#waiters]) done();
  }
}

function firstPage(lines: readonly EventLine[], start: number, bounds: PageBounds): EventLine[] {
  const page: EventLine[] = [];
  let bytes = 0;
  for (let index = start; index < lines.length && page.length < bounds.limit; index += 1) {
    const line = lines[index];
    if (line === undefined) break;
    bytes += line.line.length;
    if (page.length > 0 && bytes > bounds.maxBytes) break;
    page.push(line);
  }
  return page;
}
