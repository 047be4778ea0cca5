/** `GET …/replay` of any run: its events up to now, or the whole log with its seal. */

import type { Context } from "hono";
import { invalid } from "../core/errors.ts";
import { prefersNdjson } from "./accept.ts";
import type { AppEnv } from "./env.ts";
import { readParameters, replayParameters } from "./parameters.ts";
import { bytesResponse, textResponse } from "./streamed.ts";

/** What one request asks for. */
export type ReplayAsked =
  | { readonly kind: "events"; readonly fromSeq: number }
  | { kind: "export" };

/** Where it comes from. */
export interface ReplaySource {
  events(fromSeq: number): AsyncIterable<string>;
  sealed(): AsyncIterable<Uint8Array>;
  onBroken(error: unknown): void;
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
export async function replayResponse(asked: ReplayAsked, source: ReplaySource): Promise<Response> {
  const onBroken = (error: unknown): void => source.onBroken(error);
  if (asked.kind === "events") {
    const headers = { "Content-Type": "application/json" };
    return await textResponse(source.events(asked.fromSeq), { headers, onBroken });
  }
  const headers = { "Content-Type": "application/x-ndjson" };
  return await bytesResponse(source.sealed(), { headers, onBroken });
}
