/** How long a silent or lost worker is waited for (proto/PROTOCOL.md section 8), as profiles. */

import { HEARTBEAT_SECONDS_DEFAULT } from "../bridge/metadata.ts";
import { SILENT_PERIODS } from "../bridge/silence.ts";

/** Times of one control plane. */
export interface Liveness {
  readonly heartbeatSeconds: number;
  /** A stream without a frame for so long is closed, and its claims are lost at once. */
  readonly silenceMs: number;
  /** From the loss of a stream until its claims are lost. */
  readonly graceMs: number;
  /** A claim that no heartbeat renews for so long ends at its worker; 0: never. */
  readonly claimTtlSeconds: number;
}

/** How much later than its worker the control plane gives a claim up: the worker is always first. */
export const TTL_MARGIN_MS = 5000;

/** For any network. */
export const LIVENESS: Liveness = {
  heartbeatSeconds: HEARTBEAT_SECONDS_DEFAULT,
  silenceMs: HEARTBEAT_SECONDS_DEFAULT * SILENT_PERIODS * 1000,
  graceMs: 15_000,
  claimTtlSeconds: 90,
};

/** For networks that seldom fail, and whoever wants to hear of it soon. */
export const FAST_LIVENESS: Liveness = {
  heartbeatSeconds: 5,
  silenceMs: 12_500,
  graceMs: 5000,
  claimTtlSeconds: 15,
};
