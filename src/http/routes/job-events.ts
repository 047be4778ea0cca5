/** `GET /v1/jobs/{id}/events`: the events of a job as server-sent events, from any to the end. */

import { type Context, Hono } from "hono";
import { invalid } from "../../core/errors.ts";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { followParameters, readParameters } from "../parameters.ts";
import { eventStream } from "../sse.ts";
import { bytesResponse } from "../streamed.ts";
import type { StreamPlaces } from "./stream.ts";

/** What the route works with. */
export interface JobEventRoutesOptions {
  readonly jobs: JobService;
  /** Shared with WebSockets: both hold a reader of the feed. */
  readonly places: StreamPlaces;
  /** An answer that broke off. */
  onBroken(c: Context<AppEnv>, error: unknown): void;
}

/** The events beneath `/v1/jobs`. */
export function jobEventRoutes({ jobs, places, onBroken }: JobEventRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/:id/events", async (c) => {
    const { from_seq } = readParameters(c, followParameters);
    const fromSeq = resumeSeq(c) ?? from_seq;
    const { tenant } = c.get("principal");
    const job = await jobs.get(tenant, c.req.param("id"));
    const gone = new AbortController();
    const { signal } = c.req.raw;
    if (signal.aborted) gone.abort();
    signal.addEventListener("abort", () => gone.abort(), { once: true });
    places.take(tenant);
    const pieces = held(eventStream(jobs.subscribe(job, { fromSeq, signal: gone.signal })), () =>
      places.giveBack(tenant),
    );
    return await bytesResponse(pieces, {
      headers: { "Content-Type": "text/event-stream" },
      onBroken: (error) => onBroken(c, error),
      onCancel: () => gone.abort(),
    });
  });
  return app;
}

/** A client that comes back names the last event it saw; it wants the next. */
function resumeSeq(c: Context<AppEnv>): number | null {
  const last = c.req.header("last-event-id");
  if (last === undefined) return null;
  if (/^\d{1,15}$/.test(last)) return Number(last) + 1;
  throw invalid("Last-Event-ID", `Cannot go on after event "${last.slice(0, 64)}": no seq`);
}

async function* held(
  pieces: AsyncGenerator<string>,
  onEnd: () => void,
): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  try {
    for await (const piece of pieces) yield encoder.encode(piece);
  } finally {
    onEnd();
  }
}
