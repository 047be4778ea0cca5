/** The rules of one log, shared by every store: order, chain, and the end at the terminal event. */

import { genesis, LINE_BYTES_MAX, link, TERMINAL_KIND } from "../core/chain.ts";
import { timestamp } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { EventDraft, Subject } from "../core/event.ts";
import type { Outcome } from "../core/outcome.ts";
import { outcomeStatus } from "../core/outcome.ts";
import { eventOf } from "../core/output-text.ts";
import type { EventLine, LogHead, TimedDraft } from "./contract.ts";

/** Most drafts in one append. */
export const APPEND_DRAFTS_MAX = 4096;

/** Most lines that one read gives, whatever was asked for. */
export const READ_LINES_MAX = 4096;
/** Most bytes that one read gives, beyond its first line. */
export const READ_BYTES_MAX = 4 * 1024 * 1024;

/** Where a log that has no line yet stands. */
export function emptyLog(subject: Subject): LogHead {
  return { count: 0, hash: genesis(subject), complete: false, previous: null };
}

/**
 * The lines that drafts become, and where the log stands after them. Changes nothing.
 *
 * @throws CprgError `failed_precondition` for anything after the terminal event,
 *   `invalid_argument` for a line or a call that is too large, or a time that is none
 */
export function linkDrafts(
  subject: Subject,
  head: LogHead,
  drafts: readonly TimedDraft[],
): { lines: EventLine[]; head: LogHead } {
  if (drafts.length > APPEND_DRAFTS_MAX) {
    throw new CprgError(
      "invalid_argument",
      `Cannot append ${drafts.length} events at once: at most ${APPEND_DRAFTS_MAX}`,
    );
  }
  let { count, hash, complete } = head;
  const lines: EventLine[] = [];
  for (const { at, draft } of drafts) {
    if (complete) {
      throw new CprgError(
        "failed_precondition",
        `Cannot append ${draft.kind} to ${subject}: its log has ended`,
        { op: "append event", reason: "LOG_ENDED" },
      );
    }
    count += 1;
    const next = link(hash, count, timeOf(at), eventOf(draft));
    checkLength(next.line, draft.kind);
    lines.push({ seq: count, line: next.line });
    hash = next.hash;
    complete = draft.kind === TERMINAL_KIND;
  }
  return { lines, head: { count, hash, complete, previous: head.previous } };
}

function timeOf(at: number): string {
  // The years that RFC 3339 can write.
  if (at >= 0 && at < 253_402_300_800_000) return timestamp(at);
  throw new CprgError("invalid_argument", `Cannot append an event at time "${at}"`, {
    op: "append event",
  });
}

function checkLength(line: string, kind: string): void {
  // Three bytes are the most that one UTF-16 unit takes, so short lines need no counting.
  if (line.length * 3 <= LINE_BYTES_MAX || Buffer.byteLength(line) <= LINE_BYTES_MAX) return;
  throw new CprgError(
    "invalid_argument",
    `Cannot append ${kind}: its line is longer than ${LINE_BYTES_MAX} bytes`,
    { op: "append event", reason: "LINE_TOO_LONG" },
  );
}

/** The terminal event of a log. */
export function finishedDraft(outcome: Outcome): EventDraft {
  return {
    kind: TERMINAL_KIND,
    data: {
      status: outcomeStatus(outcome),
      exit_code: outcome.exitCode,
      signal: outcome.signal,
      reason: outcome.reason,
      duration_ms: outcome.durationMs,
      killed: outcome.killed,
      usage: outcome.usage,
      ...(outcome.error === undefined ? {} : { error: outcome.error }),
    },
  };
}

/** The terminal event of a job or an exec comes with its new status or not at all. */
export function endsOutsideFinish(subject: Subject): CprgError {
  return new CprgError(
    "failed_precondition",
    `Cannot append finished to ${subject}: its store's finish does that with the status`,
    { op: "append event", reason: "FINISH_REQUIRED" },
  );
}

/**
 * Bounds of a read as they are applied.
 *
 * @throws CprgError `invalid_argument` when the start is no sequence number
 */
export function readBounds(fromSeq: number, bounds: { limit: number; maxBytes: number }) {
  if (!Number.isSafeInteger(fromSeq) || fromSeq < 1) {
    throw new CprgError("invalid_argument", `Cannot read from seq "${fromSeq}": the first is 1`, {
      field: "from_seq",
    });
  }
  return {
    limit: Math.max(1, Math.min(Math.floor(bounds.limit) || 1, READ_LINES_MAX)),
    maxBytes: Math.max(0, Math.min(bounds.maxBytes || 0, READ_BYTES_MAX)),
  };
}
