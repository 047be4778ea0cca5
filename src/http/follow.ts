/** Events of a log as an answer that goes on until the log ends: a job's and an exec's alike. */

import type { Context } from "hono";
import { invalid } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";
import { followParameters, readParameters } from "./parameters.ts";
import { eventStream, type LogPages } from "./sse.ts";
import type { StreamPlace } from "./stream-places.ts";
import type { StreamedAnswers } from "./streamed.ts";

/** What is followed, and how the answer begins. */
export interface Followed {
  subscribe(signal: AbortSignal): LogPages;
  /** Comes before everything else, as an event without an id. */
  readonly first?: { readonly event: string; readonly data: object };
  readonly headers?: Record<string, string>;
  /** Where the caller has taken it before. */
  readonly place?: StreamPlace;
}

/**
 * The first event that a client wants: `from_seq`, or what comes after `Last-Event-ID`, which a
 * client that comes back sends by itself.
 *
 * @throws CprgError `invalid_argument` naming the parameter or header
 */
export function readFollow(c: Context<AppEnv>): number {
  const { from_seq: fromSeq } = readParameters(c, followParameters);
  const last = c.req.header("last-event-id");
  if (last === undefined) return fromSeq;
  if (/^\d{1,15}$/.test(last)) return Number(last) + 1;
  throw invalid("Last-Event-ID", `Cannot go on after event "${last.slice(0, 64)}": no seq`);
}

/**
 * The answer, as server-sent events.
 *
 * @throws CprgError with reason STREAMS_FULL (503)
 */
export async function followResponse(
  c: Context<AppEnv>,
  streamed: StreamedAnswers,
  { subscribe, first, headers = {}, place }: Followed,
): Promise<Response> {
  const over = new AbortController();
  return await streamed.bytes(c, encoded(eventStream(subscribe(over.signal), first)), {
    headers: { "Content-Type": "text/event-stream", ...headers },
    onOver: () => over.abort(),
    ...(place === undefined ? {} : { place }),
  });
}

async function* encoded(pieces: AsyncGenerator<string>): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for await (const piece of pieces) yield encoder.encode(piece);
}
