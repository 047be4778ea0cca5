/** How program output stands in a log: as text, or in base64 where the bytes are no UTF-8. */

import type { EventDraft, OutputBytes } from "./event.ts";

/** `ignoreBOM` keeps a byte order mark, which the decoder drops otherwise. */
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Output as an event, without loss; any other draft as it is. */
export function eventOf(draft: EventDraft | OutputBytes): EventDraft {
  if (!("bytes" in draft)) return draft;
  const { kind, bytes } = draft;
  try {
    return { kind, data: strictDecoder.decode(bytes) };
  } catch {
    // Not UTF-8, which is the program's right: the row carries the bytes in base64.
    return { kind, data: Buffer.from(bytes).toString("base64"), encoding: "base64" };
  }
}
