/**
 * Requests come in bursts, and each takes the event loop for a part of a millisecond before it first
 * waits for anything. So a burst is begun over several turns of the loop: what runs goes on meanwhile,
 * and connections are accepted, which the runtime does as long as there are some.
 */

import type { MiddlewareHandler } from "hono";
import { SharedTurns } from "../core/turn.ts";
import type { AppEnv } from "./env.ts";

/** Begins a request when it is its turn: first come, first served. */
export function inTurn(turns = new SharedTurns()): MiddlewareHandler<AppEnv> {
  return async (_c, next) => {
    await (turns.enter() ?? undefined);
    await next();
  };
}
