/** Which optional features a worker lists, and which are in use with a control plane (section 3). */

import type { PeerCapabilities } from "../bridge/contract.ts";
import { CREDIT, HEARTBEAT_ACK, WORKER_REATTACH, WORKER_SECRET } from "../bridge/methods.ts";

/** What a worker lists besides the methods that it serves. */
export const WORKER_FEATURES: readonly string[] = [CREDIT.name, HEARTBEAT_ACK, WORKER_SECRET];

/** What both sides list: only that is used. */
export function listedByBoth(own: readonly string[], peer: PeerCapabilities): PeerCapabilities {
  return { has: (capability) => own.includes(capability) && peer.has(capability) };
}

/** Whether claims survive the loss of a stream (section 8, "Reattach"), by what both sides list. */
export function canReattach(both: PeerCapabilities): boolean {
  return [WORKER_REATTACH.name, HEARTBEAT_ACK, CREDIT.name].every((name) => both.has(name));
}
