/** API keys in memory. */

import { changeKey, type StoredKey } from "../core/key.ts";
import type { KeyStore } from "./contract.ts";
import { checkKeyInsert } from "./key-rules.ts";

/** A key store that forgets everything with its process. */
export function memoryKeys(): KeyStore {
  const keys = new Map<string, StoredKey>();
  return {
    insert: async (key) => {
      const isTaken = [...keys.values()].some(
        ({ id, hash }) => id === key.id || Buffer.compare(hash, key.hash) === 0,
      );
      checkKeyInsert(key, { isTaken, count: keys.size });
      keys.set(key.id, key);
    },
    list: async () =>
      [...keys.values()].sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)),
    remove: async (ids) => {
      for (const id of ids) keys.delete(id);
    },
    change: async (id, change) => {
      const key = keys.get(id);
      if (key === undefined) return null;
      const changed = changeKey(key, change);
      keys.set(id, changed);
      return changed;
    },
  };
}
