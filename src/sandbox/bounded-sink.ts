/** A sink in front of another that lets no more through than the sandbox's disk can hold. */

import type { EntrySink } from "../provider/contract.ts";
import type { BytesBound } from "./bytes-bound.ts";

/** @returns a sink that throws `resource_exhausted` before an entry that is too large */
export function boundedSink(sink: EntrySink, bytes: BytesBound): EntrySink {
  return {
    entry: async (head) => {
      bytes.add(head.size);
      await sink.entry(head);
    },
    content: (piece) => sink.content(piece),
  };
}
