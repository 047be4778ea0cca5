/** An API key as a store keeps it: never the key, only its hash. */

import type { Ceilings } from "./limits.ts";

/** Roles of keys. */
export const ROLES = ["tenant", "admin"] as const;

/** What a key may do beside using its tenant's jobs. */
export type Role = (typeof ROLES)[number];

/** A key that was made here. Times are milliseconds since 1970. */
export interface StoredKey {
  /** UUIDv7: what people and the audit log call it. */
  readonly id: string;
  readonly tenant: string;
  readonly role: Role;
  /** For people. */
  readonly name: string;
  /** The key's first characters, to tell keys apart by sight. */
  readonly prefix: string;
  /** SHA-256 of the key. */
  readonly hash: Uint8Array;
  /** Ceilings that differ from the server's; null: none does. */
  readonly ceilings: Ceilings | null;
  /** Requests in a window of a minute; null: the server's. */
  readonly ratePerMin: number | null;
  readonly createdAt: number;
  readonly lastUsedAt: number | null;
  /** How long it was to live when it was made, in milliseconds; null: until it is revoked. */
  readonly lifeMs: number | null;
  readonly expiresAt: number | null;
  /** When it got its successor. */
  readonly rotatedAt: number | null;
  readonly revokedAt: number | null;
}

/** What can change of a key. */
export type KeyChange = Partial<
  Readonly<Record<"lastUsedAt" | "expiresAt" | "rotatedAt" | "revokedAt", number>>
>;

/** The key after a change; pure. Ends only come earlier, uses are only later. */
export function changeKey(key: StoredKey, change: KeyChange): StoredKey {
  return {
    ...key,
    lastUsedAt: later(key.lastUsedAt, change.lastUsedAt),
    expiresAt: earlier(key.expiresAt, change.expiresAt),
    rotatedAt: earlier(key.rotatedAt, change.rotatedAt),
    revokedAt: earlier(key.revokedAt, change.revokedAt),
  };
}

function earlier(known: number | null, at: number | undefined): number | null {
  return at === undefined ? known : Math.min(known ?? at, at);
}

function later(known: number | null, at: number | undefined): number | null {
  return at === undefined ? known : Math.max(known ?? at, at);
}
