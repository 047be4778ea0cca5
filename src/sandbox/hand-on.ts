/** From a stream of entries to a sink, at the sink's pace. */

import type { EntryPart, EntrySink } from "../provider/contract.ts";

/** Hands every head and every piece of content on, in order. */
export async function handOn(entries: AsyncIterable<EntryPart>, sink: EntrySink): Promise<void> {
  for await (const part of entries) {
    if (part instanceof Uint8Array) await sink.content(part);
    else await sink.entry(part);
  }
}
