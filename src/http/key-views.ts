/** Keys as `/v1/keys` and `cprg key --json` show them. */

import { timestamp } from "../core/clock.ts";
import type { StoredKey } from "../core/key.ts";
import type { MadeKey } from "../tenancy/key-registry.ts";

/** A key as administrators see it. */
export type KeyView = ReturnType<typeof keyView>;
/** A key that was just made, with the key itself. */
export type MadeKeyView = ReturnType<typeof madeView>;

/** A key as administrators see it. */
export function keyView(key: StoredKey) {
  return {
    key_id: key.id,
    tenant: key.tenant,
    role: key.role,
    name: key.name,
    prefix: key.prefix,
    ceilings: key.ceilings,
    rate_per_min: key.ratePerMin,
    created_at: timestamp(key.createdAt),
    last_used_at: timeOrNull(key.lastUsedAt),
    expires_at: timeOrNull(key.expiresAt),
    rotated_at: timeOrNull(key.rotatedAt),
    revoked_at: timeOrNull(key.revokedAt),
  };
}

/** A key that was just made, with the key itself. */
export function madeView({ key, stored }: MadeKey) {
  return { ...keyView(stored), key };
}

function timeOrNull(at: number | null): string | null {
  return at === null ? null : timestamp(at);
}
