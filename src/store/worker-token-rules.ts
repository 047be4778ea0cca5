/** The rules of workers' tokens that every store keeps in the same way. */

import { CprgError } from "../core/errors.ts";
import type { StoredWorkerToken } from "../core/worker-token.ts";
import { WORKER_TOKENS_MAX } from "./contract.ts";

/**
 * @throws CprgError `already_exists` for an id that is taken, `resource_exhausted` when there is no
 *   room
 */
export function checkTokenInsert(
  token: StoredWorkerToken,
  { isTaken, count }: { readonly isTaken: boolean; readonly count: number },
): void {
  if (isTaken) {
    throw new CprgError("already_exists", `Cannot keep token "${token.id}": it exists already`, {
      op: "insert worker token",
    });
  }
  if (count < WORKER_TOKENS_MAX) return;
  throw new CprgError("resource_exhausted", `Cannot keep another token: there are ${count}`, {
    op: "insert worker token",
    reason: "TOKENS_FULL",
    hint: "A token is kept until it expires, also when it is revoked: give new ones a shorter life",
  });
}
