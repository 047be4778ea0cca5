/** Whom a token lets in: minted ones anywhere, the shared bearer where nobody else can listen. */

import { timingSafeEqual } from "node:crypto";
import { isIPv4 } from "node:net";
import type { PeerAddress } from "../bridge/listener.ts";
import { badToken } from "./token-signer.ts";
import { SHARED_IDENTITY, type WorkerIdentity } from "./worker-identity.ts";
import { hashOf } from "./worker-owner.ts";
import type { WorkerTokens } from "./worker-tokens.ts";

/** How workers authenticate. */
export interface WorkerAdmissionOptions {
  readonly tokens: WorkerTokens;
  /** The shared bearer; none: minted tokens alone. */
  readonly shared: string | undefined;
  /** Takes the shared bearer from any address. */
  readonly allowShared: boolean;
}

/** Checks tokens. The result throws CprgError `unauthenticated`. */
export function workerAdmission({ tokens, shared, allowShared }: WorkerAdmissionOptions) {
  const sharedHash = shared === undefined ? null : hashOf(shared);
  return async (token: string, { address }: PeerAddress): Promise<WorkerIdentity> => {
    if (sharedHash === null || !timingSafeEqual(hashOf(token), sharedHash)) {
      return await tokens.authenticate(token);
    }
    if (allowShared || isLoopback(address)) return SHARED_IDENTITY;
    throw badToken("the shared token is taken from this host alone: mint one for this worker");
  };
}

/** Whether an address is of this host (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3). */
export function isLoopback(address: string): boolean {
  const mapped = /^::ffff:(.+)$/i.exec(address)?.[1] ?? address;
  return mapped === "::1" || (isIPv4(mapped) && mapped.startsWith("127."));
}
