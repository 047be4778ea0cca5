/** Turning a request into a WebSocket that is fed with a log: a job's and an exec's alike. */

import type { Context } from "hono";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import { isUpgrade } from "./auth.ts";
import type { AppEnv } from "./env.ts";
import { LogStream, type LogStreamOptions } from "./log-stream.ts";
import { followParameters, readParameters, socketParameters } from "./parameters.ts";
import type { StreamPlaces } from "./stream-places.ts";

/** What WebSockets share. */
export interface UpgradeRules {
  readonly log: Log;
  readonly places: StreamPlaces;
  readonly stallMs: number;
}

/** @throws CprgError `invalid_argument` naming the parameter */
export function readSocketStart(c: Context<AppEnv>): number {
  return readParameters(c, isUpgrade(c.req.raw) ? socketParameters : followParameters).from_seq;
}

/**
 * Upgrades.
 *
 * @throws CprgError with reason UPGRADE_REQUIRED (426), STREAMS_FULL (503)
 */
export function upgradeResponse(
  c: Context<AppEnv>,
  { log, places, stallMs }: UpgradeRules,
  source: Pick<LogStreamOptions, "subscribe" | "hasEnded">,
): Response {
  const { listener } = c.env ?? {};
  if (!isUpgrade(c.req.raw) || listener === undefined) throw upgradeRequired();
  const requestId = c.get("requestId");
  const place = places.take(c.get("principal").tenant);
  const stream = new LogStream({
    ...source,
    stallMs,
    onFailure: (error) => log.error("stream failed", { request_id: requestId, error }),
    onClosed: () => place.giveBack(),
  });
  // What is returned after an upgrade is not sent.
  if (listener.upgrade(c.req.raw, stream)) return new Response(null);
  stream.closed();
  throw upgradeRequired();
}

function upgradeRequired(): CprgError {
  return new CprgError("invalid_argument", "Cannot stream: the request is no WebSocket upgrade", {
    reason: "UPGRADE_REQUIRED",
    hint: "Connect with a WebSocket client, or read /replay",
  });
}
