/** Reading a log in bounded pages, so that no reader holds more than one. */

import type { Subject } from "../core/event.ts";
import type { EventLine, EventLog } from "../store/contract.ts";
import { LOG_PAGE, readPage } from "./page-reads.ts";

/**
 * Pages of a log from one sequence number to another.
 *
 * @param range `fromSeq` and `toSeq`, both included
 */
export async function* logPages(
  events: Pick<EventLog, "read">,
  { subject, fromSeq, toSeq }: { subject: Subject; fromSeq: number; toSeq: number },
): AsyncGenerator<readonly EventLine[]> {
  for (let seq = fromSeq; seq <= toSeq; ) {
    const read = await readPage(events, subject, { fromSeq: seq, ...LOG_PAGE });
    const page = read.filter((line) => line.seq <= toSeq);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page;
    seq = last.seq + 1;
  }
}
