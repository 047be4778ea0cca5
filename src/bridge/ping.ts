/** Pings on an HTTP/2 connection: nothing else notices a peer that is frozen or cut off. */

import type { Http2Session } from "node:http2";
import { PING_INTERVAL_MS, PING_TIMEOUT_MS } from "./limits.ts";

/** How often, and how long an answer may take. */
export interface PingOptions {
  readonly intervalMs?: number;
  readonly timeoutMs?: number;
}

/**
 * Pings until the session ends, and destroys it when an answer takes too long. An answer may take
 * longer than any block of the peer's event loop; the interval begins after it.
 */
export function keepAlive(
  session: Http2Session,
  { intervalMs = PING_INTERVAL_MS, timeoutMs = PING_TIMEOUT_MS }: PingOptions = {},
): void {
  let timer: ReturnType<typeof setTimeout>;
  const wait = (): void => {
    timer = setTimeout(ping, intervalMs);
    timer.unref();
  };
  const ping = (): void => {
    if (session.closed || session.destroyed) return;
    timer = setTimeout(() => session.destroy(new Error("ping timed out")), timeoutMs);
    try {
      session.ping(() => {
        clearTimeout(timer);
        if (!session.destroyed) wait();
      });
    } catch {
      // It is being destroyed; `close` follows.
    }
  };
  session.once("close", () => clearTimeout(timer));
  wait();
}
