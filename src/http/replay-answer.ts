/** `GET …/replay` of any run: its events up to now, or the whole log with its seal. */

import type { Context } from "hono";
import { invalid } from "../core/errors.ts";
import { prefersNdjson } from "./accept.ts";
import type { AppEnv } from "./env.ts";
import { readParameters, replayParameters } from "./parameters.ts";
import type { StreamedAnswers } from "./streamed.ts";

/** What one request asks for. */
export type ReplayAsked =
  | { readonly kind: "events"; readonly fromSeq: number }
  | { kind: "export" };

/** Where it comes from. */
export interface ReplaySource {
  events(fromSeq: number): AsyncIterable<string>;
  sealed(): AsyncIterable<Uint8Array>;
}

/** @throws CprgError `invalid_argument` naming the parameter */
export function readReplay(c: Context<AppEnv>): ReplayAsked {
  const { from_seq: fromSeq, format } = readParameters(c, replayParameters);
  const isExport =
    format === undefined ? prefersNdjson(c.req.header("accept")) : format === "ndjson";
  if (!isExport) return { kind: "events", fromSeq };
  if (c.req.query("from_seq") !== undefined) {
    throw invalid("from_seq", "Cannot use from_seq with NDJSON: a sealed export is the whole log");
  }
  return { kind: "export" };
}

/** The answer. */
export async function replayResponse(
  c: Context<AppEnv>,
  streamed: StreamedAnswers,
  { asked, source }: { readonly asked: ReplayAsked; readonly source: ReplaySource },
): Promise<Response> {
  if (asked.kind === "events") {
    const headers = { "Content-Type": "application/json" };
    return await streamed.text(c, source.events(asked.fromSeq), { headers });
  }
  const headers = { "Content-Type": "application/x-ndjson" };
  return await streamed.bytes(c, source.sealed(), { headers });
}
