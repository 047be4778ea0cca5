/** What a request carries through the routes, and what the routes need of the listener. */

import type { Principal } from "../tenancy/key-ring.ts";
import type { LogStream } from "./log-stream.ts";

/** The listener, as far as routes use it; absent where an app is called without one. */
export interface Listener {
  /** Turns the request into a WebSocket that the stream feeds; false when that cannot be. */
  upgrade(request: Request, stream: LogStream): boolean;
  /** Seconds that a request may be silent; 0 for no bound. */
  setIdleTimeout(request: Request, seconds: number): void;
}

/** One of several things that a request did, each with an end of its own. */
export interface Act {
  /** Id of what it was done to; null when that did not come to be. */
  readonly object: string | null;
  /** HTTP status that it would have been answered with alone. */
  readonly status: number;
}

/** Types of the app's context. */
export interface AppEnv {
  Bindings: { listener?: Listener };
  Variables: {
    requestId: string;
    principal: Principal;
    /**
     * Aborted when nobody may have the answer any more, because the client went away or its key was
     * revoked: the reason is the error to answer with. Counts until the route has answered.
     */
    signal: AbortSignal;
    /** Set by routes that do several things at once: the audit log has each of them. */
    acts?: readonly Act[];
  };
}
