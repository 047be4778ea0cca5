/** A worker that comes back with claims: which of them go on (proto/PROTOCOL.md section 8). */

import type { Mux, PeerCapabilities } from "../bridge/contract.ts";
import { CREDIT, HEARTBEAT_ACK, WORKER_REATTACH } from "../bridge/methods.ts";
import type { Claim, RunningExec } from "../gen/messages.ts";
import type { ClaimLink } from "./claim-link.ts";

/** Before it answers, a worker ends the claims that are not kept. */
const REATTACH_MS_MAX = 60_000;

/** Whether claims of a peer outlive its stream. */
export function canReattach(peer: PeerCapabilities): boolean {
  return [WORKER_REATTACH.name, HEARTBEAT_ACK, CREDIT.name].every((name) => peer.has(name));
}

/**
 * Tells a worker which claims it keeps, and gives those their new stream; the others are lost.
 *
 * @param find what is known here of a claim
 * @throws CprgError what the worker answered; nothing has changed then
 */
export async function settleClaims(
  mux: Mux,
  presented: readonly Claim[],
  find: (claim: Claim) => ClaimLink | undefined,
): Promise<void> {
  const canKeep = canReattach(mux.peer);
  const found = presented.map((claim) => {
    const link = find(claim);
    return { claim, link, keep: canKeep && link?.isKept === true };
  });
  const verdicts = found.map(({ claim, keep }) => {
    return { claim, keep, reason: keep ? "" : "the control plane gave it up" };
  });
  const options = { timeoutMs: REATTACH_MS_MAX };
  const { execs } = await mux.call(WORKER_REATTACH, { verdicts }, options);
  for (const { link, keep } of found) {
    if (keep) link?.attach(mux, idsOf(execs, link.claim));
    else link?.lose("it was not kept");
  }
}

function idsOf(execs: readonly RunningExec[], { taskId, epoch }: Claim): Set<string> {
  const own = execs.filter(({ claim }) => claim?.taskId === taskId && claim.epoch === epoch);
  return new Set(own.map(({ execId }) => execId));
}
