/** Waiting on behalf of a request: as long as it says, and not after nobody may have the answer. */

import type { Context } from "hono";
import type { AppEnv } from "./env.ts";
import { ANSWER_IDLE_SECONDS, NO_IDLE_TIMEOUT } from "./idle.ts";

/** Waits with a deadline of its own; a client that goes, or a key that ends, ends the wait. */
export async function patiently<T>(
  c: Context<AppEnv>,
  waitMs: number,
  wait: (bounds: { waitMs: number; signal: AbortSignal }) => Promise<T>,
): Promise<T> {
  const { listener } = c.env ?? {};
  listener?.setIdleTimeout(c.req.raw, NO_IDLE_TIMEOUT);
  try {
    return await wait({ waitMs, signal: c.get("signal") });
  } finally {
    listener?.setIdleTimeout(c.req.raw, ANSWER_IDLE_SECONDS);
  }
}
