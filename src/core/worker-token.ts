/** A token for workers as a store keeps it: never the token, only what it says. */

/** A token that was minted here. Times are milliseconds since 1970. */
export interface StoredWorkerToken {
  /** UUIDv7: the `jti` of the token. */
  readonly id: string;
  /** For people. */
  readonly name: string;
  /** One worker's id, or a pattern whose last character is `*`. */
  readonly workerId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Tenants that its workers serve; null: every one. */
  readonly tenants: readonly string[] | null;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly revokedAt: number | null;
}

/** The token once it is revoked: the first revocation stands; pure. */
export function revokedToken(token: StoredWorkerToken, at: number): StoredWorkerToken {
  return { ...token, revokedAt: Math.min(token.revokedAt ?? at, at) };
}
