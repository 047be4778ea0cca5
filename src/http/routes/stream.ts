/** `GET /v1/jobs/{id}/stream`: the events of a job over a WebSocket, from `from_seq` to the end. */

import { Hono } from "hono";
import { CprgError } from "../../core/errors.ts";
import type { Log } from "../../core/log.ts";
import { isTerminal } from "../../core/reasons.ts";
import type { JobService } from "../../jobs/service.ts";
import { isUpgrade } from "../auth.ts";
import type { AppEnv } from "../env.ts";
import { JobStream } from "../job-stream.ts";
import { readQuery } from "../query.ts";
import { readFromSeq } from "./jobs.ts";

/** Streams at once: each may hold a buffer. */
export const STREAMS_MAX = 1000;
/** Streams of one tenant at once, so that none takes them all. */
export const STREAMS_TENANT_MAX = 250;
const STREAMS_RETRY_SECONDS = 5;

/** What the route works with. */
export interface StreamRoutesOptions {
  readonly jobs: JobService;
  readonly log: Log;
  readonly places: StreamPlaces;
  readonly stallMs: number;
}

/** The stream beneath `/v1/jobs`. */
export function streamRoutes(options: StreamRoutesOptions): Hono<AppEnv> {
  const { jobs, log, stallMs, places } = options;
  const app = new Hono<AppEnv>();
  app.get("/:id/stream", async (c) => {
    const query = readQuery(c, isUpgrade(c) ? ["from_seq", "key"] : ["from_seq"]);
    const { tenant } = c.get("principal");
    const job = await jobs.get(tenant, c.req.param("id"));
    const fromSeq = readFromSeq(query);
    const { listener } = c.env ?? {};
    if (!isUpgrade(c) || listener === undefined) throw upgradeRequired();
    const requestId = c.get("requestId");
    places.take(tenant);
    const stream = new JobStream({
      stallMs,
      subscribe: (signal) => jobs.subscribe(job, { fromSeq, signal }),
      hasEnded: async () => isTerminal((await jobs.get(tenant, job.id)).status),
      onFailure: (error) => log.error("stream failed", { request_id: requestId, error }),
      onClosed: () => places.giveBack(tenant),
    });
    // What is returned after an upgrade is not sent.
    if (listener.upgrade(c.req.raw, stream)) return new Response(null);
    stream.closed();
    throw upgradeRequired();
  });
  return app;
}

/** How many streams may be open, in all and for each tenant. */
export class StreamPlaces {
  readonly #max: number;
  readonly #tenantMax: number;
  readonly #byTenant = new Map<string, number>();
  #taken = 0;

  constructor(max: number, tenantMax: number) {
    this.#max = max;
    this.#tenantMax = tenantMax;
  }

  /** @throws CprgError `unavailable` when there is none */
  take(tenant: string): void {
    const own = this.#byTenant.get(tenant) ?? 0;
    if (this.#taken >= this.#max) throw tooMany(`${this.#max} streams are open`);
    if (own >= this.#tenantMax) throw tooMany(`tenant "${tenant}" has ${own} streams open`);
    this.#taken += 1;
    this.#byTenant.set(tenant, own + 1);
  }

  giveBack(tenant: string): void {
    const own = (this.#byTenant.get(tenant) ?? 0) - 1;
    this.#taken -= 1;
    if (own > 0) this.#byTenant.set(tenant, own);
    else this.#byTenant.delete(tenant);
  }
}

/** The error of a stream that is asked for without an upgrade. */
export function upgradeRequired(): CprgError {
  return new CprgError("invalid_argument", "Cannot stream: the request is no WebSocket upgrade", {
    reason: "UPGRADE_REQUIRED",
    hint: "Connect with a WebSocket client, or read /replay",
  });
}

function tooMany(state: string): CprgError {
  return new CprgError("unavailable", `Cannot stream: ${state}`, {
    reason: "STREAMS_FULL",
    retryAfterSeconds: STREAMS_RETRY_SECONDS,
  });
}
