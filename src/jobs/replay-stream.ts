/** The body of a replay, `{job_id, events, complete}`, written page by page. */

import type { Job } from "../core/job.ts";
import type { EventLog } from "../store/contract.ts";
import { logPages } from "./log-pages.ts";

/**
 * Pieces of a replay's JSON. Each event is the exact line of the log.
 *
 * @param fromSeq the first event wanted, from 1
 */
export async function* replayStream(
  events: Pick<EventLog, "read" | "head">,
  { job, fromSeq }: { job: Job; fromSeq: number },
): AsyncGenerator<string> {
  const subject = `job:${job.id}` as const;
  const head = await events.head(subject);
  yield `{"job_id":${JSON.stringify(job.id)},"events":[`;
  let separator = "";
  for await (const page of logPages(events, { subject, fromSeq, toSeq: head?.count ?? 0 })) {
    yield separator + page.map(({ line }) => line).join(",");
    separator = ",";
  }
  yield `],"complete":${head?.complete ?? false}}`;
}
