/**
 * The body of a result, folded from the log of a run and written piece by piece: a result may hold a
 * hundred megabytes, and as many clients as like may ask for it at once. The log is read once for
 * each stream, and once more for a stream that is no UTF-8.
 */

import type { EventRow, Subject } from "../core/event.ts";
import type { LimitHit, Violation } from "../core/outcome.ts";
import { OwnTurns } from "../core/turn.ts";
import type { OutputChannel } from "../provider/contract.ts";
import type { EventLog } from "../store/contract.ts";
import { logPages } from "./log-pages.ts";

/** Of all results that are folded at once: none holds up more than a page does. */
const folds = new OwnTurns();

/** Where in a log the rows are that a fold reads. */
interface Fold {
  readonly events: Pick<EventLog, "read">;
  readonly subject: Subject;
  readonly toSeq: number;
}

/** What the first reading learns besides text. */
interface Findings {
  readonly violations: Violation[];
  readonly limitsHit: LimitHit[];
  readonly binary: Set<OutputChannel>;
  truncated: boolean;
}

/** Whose result, and its fields that need no output. */
export interface ResultOf {
  readonly subject: Subject;
  readonly head: object;
}

/** Pieces of a result's JSON: of a run that ended, or of what there is so far. */
export async function* resultStream(
  events: Pick<EventLog, "read" | "head">,
  { subject, head: fields }: ResultOf,
): AsyncGenerator<string> {
  const head = await events.head(subject);
  const fold: Fold = { events, subject, toSeq: head?.count ?? 0 };
  const found: Findings = { violations: [], limitsHit: [], binary: new Set(), truncated: false };
  yield JSON.stringify(fields).slice(0, -1);
  yield* textField(fold, { channel: "stdout", found });
  yield* textField(fold, { channel: "stderr" });
  for (const channel of ["stdout", "stderr"] as const) {
    if (found.binary.has(channel)) yield* base64Field(fold, channel);
  }
  const { truncated, violations, limitsHit } = found;
  yield `,${JSON.stringify({ truncated, violations, limits_hit: limitsHit }).slice(1)}`;
}

async function* rowsOf(fold: Fold): AsyncGenerator<EventRow> {
  const { subject } = fold;
  for await (const page of logPages(fold.events, { subject, fromSeq: 1, toSeq: fold.toSeq })) {
    await folds.next();
    for (const { line } of page) yield JSON.parse(line) as EventRow;
  }
}

/** `,"stdout":"…"`: what is no UTF-8 becomes U+FFFD, over row borders as well. */
async function* textField(
  fold: Fold,
  { channel, found }: { channel: OutputChannel; found?: Findings },
): AsyncGenerator<string> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  yield `,"${channel}":"`;
  for await (const row of rowsOf(fold)) {
    if (found !== undefined) note(found, row);
    if (row.kind !== channel) continue;
    // A row of text begins with a whole code point: what is left of rows before it has no rest.
    yield row.encoding === "base64"
      ? inner(decoder.decode(rowBytes(row), { stream: true }))
      : inner(decoder.decode() + (row.data as string));
  }
  yield `${inner(decoder.decode())}"`;
}

/** `,"stdout_base64":"…"`: in groups of three bytes, so that the pieces join. */
async function* base64Field(fold: Fold, channel: OutputChannel): AsyncGenerator<string> {
  let rest: Uint8Array = new Uint8Array();
  yield `,"${channel}_base64":"`;
  for await (const row of rowsOf(fold)) {
    if (row.kind !== channel) continue;
    const bytes = Buffer.concat([rest, rowBytes(row)]);
    const whole = bytes.length - (bytes.length % 3);
    rest = bytes.subarray(whole);
    yield bytes.subarray(0, whole).toString("base64");
  }
  yield `${Buffer.from(rest).toString("base64")}"`;
}

function note(found: Findings, row: EventRow): void {
  if (row.kind === "violation") found.violations.push(row.data as Violation);
  if (row.kind === "limit") found.limitsHit.push(row.data as LimitHit);
  if (row.kind === "truncated") found.truncated = true;
  if (row.encoding === "base64") found.binary.add(row.kind as OutputChannel);
}

/** The bytes of an output row. */
function rowBytes(row: EventRow): Uint8Array {
  return Buffer.from(row.data as string, row.encoding ?? "utf8");
}

/** A string as it stands between the quotes of JSON. */
function inner(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
