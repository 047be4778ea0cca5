/** Who a worker may be, as its token says: which ids, whose tasks, which labels, until when. */

import { CprgError } from "../core/errors.ts";

/** What a token that was accepted stands for. */
export interface WorkerIdentity {
  /** Null: the shared bearer. */
  readonly tokenId: string | null;
  /** One id, or a pattern whose last character is `*`. */
  readonly workerId: string;
  /** These win over what the worker says of itself. */
  readonly labels: Readonly<Record<string, string>>;
  /** Tenants that it works for; null: every one. */
  readonly tenants: readonly string[] | null;
  /** When its streams are cut, in milliseconds since 1970; null: never. */
  readonly expiresAt: number | null;
}

/** What the shared bearer gives: any id, for every tenant, for as long as the bearer stands. */
export const SHARED_IDENTITY: WorkerIdentity = Object.freeze({
  tokenId: null,
  workerId: "*",
  labels: Object.freeze({}),
  tenants: null,
  expiresAt: null,
});

/** @throws CprgError `permission_denied` ID_NOT_ALLOWED for an id that the token is not for */
export function checkWorkerId(workerId: string, { workerId: pattern }: WorkerIdentity): void {
  const isAllowed = pattern.endsWith("*")
    ? workerId.startsWith(pattern.slice(0, -1))
    : workerId === pattern;
  if (isAllowed) return;
  throw new CprgError("permission_denied", `the token is not for ${workerId}`, {
    reason: "ID_NOT_ALLOWED",
  });
}
