/** The body of a replay, `{job_id or exec_id, events, complete}`, written page by page. */

import type { Subject } from "../core/event.ts";
import type { EventLog } from "../store/contract.ts";
import { logPages } from "./log-pages.ts";

/**
 * Pieces of a replay's JSON. Each event is the exact line of the log.
 *
 * @param asked `head`: the fields that name the run; `fromSeq`: the first event wanted, from 1
 */
export async function* replayStream(
  events: Pick<EventLog, "read" | "head">,
  { subject, head: fields, fromSeq }: { subject: Subject; head: object; fromSeq: number },
): AsyncGenerator<string> {
  const head = await events.head(subject);
  yield `${JSON.stringify(fields).slice(0, -1)},"events":[`;
  let separator = "";
  for await (const page of logPages(events, { subject, fromSeq, toSeq: head?.count ?? 0 })) {
    yield separator + page.map(({ line }) => line).join(",");
    separator = ",";
  }
  yield `],"complete":${head?.complete ?? false}}`;
}
