/** Tokens of workers in memory. */

import { revokedToken, type StoredWorkerToken } from "../core/worker-token.ts";
import type { WorkerTokenStore } from "./contract.ts";
import { checkTokenInsert } from "./worker-token-rules.ts";

/** A token store that forgets everything with its process. */
export function memoryWorkerTokens(): WorkerTokenStore {
  const tokens = new Map<string, StoredWorkerToken>();
  return {
    insert: async (token) => {
      checkTokenInsert(token, { isTaken: tokens.has(token.id), count: tokens.size });
      tokens.set(token.id, structuredClone(token));
    },
    list: async () =>
      [...tokens.values()].sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)),
    revoke: async (id, at) => {
      const token = tokens.get(id);
      if (token === undefined) return null;
      const revoked = revokedToken(token, at);
      tokens.set(id, revoked);
      return revoked;
    },
    removeExpired: async (before) => {
      const expired = [...tokens.values()].filter(({ expiresAt }) => expiresAt < before);
      for (const { id } of expired) tokens.delete(id);
      return expired.length;
    },
  };
}
