/** Events of a log as server-sent events (WHATWG HTML, "Server-sent events"). */

import { lineStart } from "../core/chain.ts";

/** Longest silence: what is between a server and a client may cut connections that say nothing. */
export const SSE_COMMENT_MS = 15_000;
const COMMENT = ": \n\n";

/** An `Accept` header that asks for events. */
export function wantsEvents(accept: string | undefined): boolean {
  return (accept ?? "").split(",").some((range) => range.trim().startsWith("text/event-stream"));
}

/** Pages of lines of a log. */
export type LogPages = AsyncIterable<readonly { readonly seq: number; readonly line: string }[]>;

/**
 * Pieces of an event stream: each line of the log is the data of one event, whose id is its seq and
 * whose name is its kind.
 *
 * Something is sent at once, so that a client sees its headers.
 *
 * @param first what comes before everything else, as an event without an id
 */
export async function* eventStream(
  pages: LogPages,
  first?: { readonly event: string; readonly data: object },
): AsyncGenerator<string> {
  if (first === undefined) yield COMMENT;
  else yield `event: ${first.event}\ndata: ${JSON.stringify(first.data)}\n\n`;
  const reader = pages[Symbol.asyncIterator]();
  try {
    for (let next = reader.next(); ; ) {
      const result = await orSilence(next);
      if (result === null) {
        yield COMMENT;
        continue;
      }
      if (result.done) return;
      yield result.value.map(eventOf).join("");
      next = reader.next();
    }
  } finally {
    await reader.return?.();
  }
}

function eventOf({ seq, line }: { readonly seq: number; readonly line: string }): string {
  return `id: ${seq}\nevent: ${lineStart(line)?.kind ?? "message"}\ndata: ${line}\n\n`;
}

/** Null when nothing has come for {@link SSE_COMMENT_MS}. */
async function orSilence<T>(work: Promise<T>): Promise<T | null> {
  const { promise, resolve } = Promise.withResolvers<null>();
  const timer = setTimeout(() => resolve(null), SSE_COMMENT_MS);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}
