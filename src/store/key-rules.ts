/** The rules of keys that every store keeps in the same way. */

import { CprgError } from "../core/errors.ts";
import type { StoredKey } from "../core/key.ts";
import { STORED_KEYS_MAX } from "./contract.ts";

/**
 * @throws CprgError `already_exists` for an id or hash that is taken, `resource_exhausted` when
 *   there is no room
 */
export function checkKeyInsert(
  key: StoredKey,
  { isTaken, count }: { readonly isTaken: boolean; readonly count: number },
): void {
  if (isTaken) {
    throw new CprgError("already_exists", `Cannot keep key "${key.id}": it exists already`, {
      op: "insert key",
    });
  }
  if (count < STORED_KEYS_MAX) return;
  throw new CprgError("resource_exhausted", `Cannot keep another key: there are ${count}`, {
    op: "insert key",
    reason: "KEYS_FULL",
  });
}
