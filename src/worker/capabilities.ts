/** Which optional features a worker lists, and which are in use with a control plane (section 3). */

import type { PeerCapabilities } from "../bridge/contract.ts";
import { CREDIT, HEARTBEAT_ACK, WORKER_REATTACH, WORKER_SECRET } from "../bridge/methods.ts";

/** What a worker lists besides the methods that it serves. */
export const WORKER_FEATURES: readonly string[] = [CREDIT.name, HEARTBEAT_ACK, WORKER_SECRET];

/** Whether claims survive the loss of a stream to this peer (section 8, "Reattach"). */
export function canReattach(peer: PeerCapabilities): boolean {
  return [WORKER_REATTACH.name, HEARTBEAT_ACK, CREDIT.name].every((name) => peer.has(name));
}
