/** A log as a file that can be verified: its lines, then the seal. */

import { type SealKey, sealBody, sealLine, splitLine, toHex } from "../core/chain.ts";
import { type Clock, systemClock, timestamp } from "../core/clock.ts";
import { assert, CprgError } from "../core/errors.ts";
import type { Subject } from "../core/event.ts";
import type { LogHead, Store } from "../store/contract.ts";
import { noPreviousHead } from "../store/job-rules.ts";
import { LOG_PAGE, readPage } from "./page-reads.ts";

/** What is exported, and what signs it. */
export interface ExportOptions {
  readonly store: Pick<Store, "events">;
  readonly key: SealKey;
  readonly subject: Subject;
  readonly clock?: Clock;
}

/**
 * The log as it stands when the first chunk is asked for, in chunks of whole lines, then its seal.
 * A log that has not ended is sealed as incomplete.
 *
 * @throws CprgError `not_found` when there is no such log; `aborted` when it is removed meanwhile,
 *   so that what was sent has no seal
 */
export async function* exportLog(options: ExportOptions): AsyncGenerator<Uint8Array, void, void> {
  const { store, subject } = options;
  const head = await store.events.head(subject);
  if (head === null) throw notThere(subject);
  let sent = 0;
  while (sent < head.count) {
    const limit = Math.min(LOG_PAGE.limit, head.count - sent);
    const page = await readPage(store.events, subject, { ...LOG_PAGE, fromSeq: sent + 1, limit });
    const last = page.at(-1);
    if (last === undefined) throw removed(subject);
    sent = last.seq;
    if (sent === head.count) assertHead(head, last.line);
    yield Buffer.from(page.map(({ line }) => `${line}\n`).join(""));
  }
  yield Buffer.from(`${seal(options, head)}\n`);
}

function seal({ key, subject, clock = systemClock }: ExportOptions, head: LogHead): string {
  const body = sealBody({
    kind: "seal",
    subject,
    count: head.count,
    head: toHex(head.hash),
    previous: toHex(head.previous ?? noPreviousHead()),
    complete: head.complete,
    at: timestamp(clock.now()),
    key: key.fingerprint,
  });
  return sealLine(body, key.sign(body));
}

function assertHead(head: LogHead, lastLine: string): void {
  const hash = splitLine(lastLine)?.hash;
  assert(hash !== undefined && toHex(hash) === toHex(head.hash), "the head is not the last line's");
}

function notThere(subject: Subject): CprgError {
  return new CprgError("not_found", `Cannot export "${subject}": there is no such log`, {
    op: "export log",
  });
}

function removed(subject: Subject): CprgError {
  return new CprgError("aborted", `Cannot export "${subject}": it was removed meanwhile`, {
    op: "export log",
    retryable: false,
  });
}
