/**
 * The one feed for all readers of a log: history, then live, without gap or duplicate. What is
 * appended here wakes readers and stays in a short tail that they share; a reader that is further
 * behind reads pages from the store. Nothing is kept for a slow reader.
 */

import { isTerminalLine } from "../core/chain.ts";
import { CprgError } from "../core/errors.ts";
import type { Subject } from "../core/event.ts";
import type { EventLine, EventLog, TimedDraft } from "../store/contract.ts";
import { type TailBudget, Topic } from "./feed-topic.ts";
import { LOG_PAGE, readPage } from "./page-reads.ts";

/** Most readers at once, over all logs. */
export const SUBSCRIBERS_MAX = 10_000;

/** From where a subscription reads, and what ends it before the log does. */
export interface SubscribeOptions {
  /** First sequence number wanted; 1 is the whole log. */
  readonly fromSeq: number;
  readonly signal: AbortSignal;
}

/** Appends to logs and feeds their readers. */
export class Feed {
  readonly #events: EventLog;
  readonly #topics = new Map<Subject, Topic>();
  readonly #budget: TailBudget = { usedBytes: 0 };
  #subscribers = 0;

  constructor(events: EventLog) {
    this.#events = events;
  }

  /** How many readers there are. */
  get subscribers(): number {
    return this.#subscribers;
  }

  /**
   * Commits drafts, then wakes readers. Lines are made here only for readers who are close behind:
   * the others read them from the store when they get there.
   *
   * @throws CprgError as `EventLog.append` does
   */
  async append(subject: Subject, drafts: readonly TimedDraft[]): Promise<void> {
    const isFollowed = this.#topics.get(subject)?.isFollowed ?? false;
    const lines = await this.#events.append(subject, drafts, { isSilent: !isFollowed });
    const topic = this.#topics.get(subject);
    if (isFollowed) topic?.push(lines);
    else topic?.advance();
  }

  /** Wakes readers after a commit that was made elsewhere, as `JobStore.finish` makes it. */
  advanced(subject: Subject): void {
    this.#topics.get(subject)?.advance();
  }

  /**
   * Lines from `fromSeq` on, in pages, as they are committed; ends after the terminal event or when
   * the signal is aborted. A log that does not exist yet is waited for. The next page is read when
   * it is asked for.
   *
   * @throws CprgError `resource_exhausted` when there are {@link SUBSCRIBERS_MAX} readers,
   *   `invalid_argument` for a start that is no sequence number
   */
  subscribe(subject: Subject, options: SubscribeOptions): AsyncIterable<readonly EventLine[]> {
    this.#checkRoom();
    if (!Number.isSafeInteger(options.fromSeq) || options.fromSeq < 1) {
      throw new CprgError("invalid_argument", `Cannot read from seq "${options.fromSeq}"`, {
        field: "from_seq",
        hint: "The first event is 1",
      });
    }
    return this.#pages(subject, options);
  }

  async *#pages(subject: Subject, { fromSeq, signal }: SubscribeOptions) {
    const topic = this.#join(subject);
    const reader = topic.join(fromSeq);
    try {
      let hasRead = false;
      while (!signal.aborted) {
        // Taken before the read: whatever is committed after it ends the wait below.
        const version = topic.version;
        const tail = topic.read(reader.next, LOG_PAGE);
        const page =
          tail ?? (await readPage(this.#events, subject, { fromSeq: reader.next, ...LOG_PAGE }));
        const last = page.at(-1);
        if (last === undefined) {
          const { next } = reader;
          if (tail === null && (await this.#hasEnded(subject, { next, hasRead }))) return;
          await topic.changed(version, signal);
          continue;
        }
        if (signal.aborted) return;
        yield page;
        if (isTerminalLine(last.line)) return;
        reader.next = last.seq + 1;
        hasRead = true;
      }
    } finally {
      topic.leave(reader);
      this.#leave(subject, topic);
    }
  }

  /** Whether a reader stands behind the end of a log that can grow no more, or was removed. */
  async #hasEnded(
    subject: Subject,
    { next, hasRead }: { readonly next: number; readonly hasRead: boolean },
  ): Promise<boolean> {
    const head = await this.#events.head(subject);
    if (head === null) return hasRead;
    return head.complete && head.count < next;
  }

  #checkRoom(): void {
    if (this.#subscribers < SUBSCRIBERS_MAX) return;
    throw new CprgError("resource_exhausted", "Cannot follow the log: too many readers", {
      op: "follow log",
      reason: "TOO_MANY_READERS",
      retryable: true,
    });
  }

  #join(subject: Subject): Topic {
    this.#checkRoom();
    const topic = this.#topics.get(subject) ?? new Topic(this.#budget);
    this.#topics.set(subject, topic);
    this.#subscribers += 1;
    return topic;
  }

  #leave(subject: Subject, topic: Topic): void {
    this.#subscribers -= 1;
    if (topic.hasReaders) return;
    this.#topics.delete(subject);
    topic.drop();
  }
}
