/** Who a presented key belongs to. */

import { timingSafeEqual } from "node:crypto";
import { invalid } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import { hashKey, KEY_CHARS_MAX, type KeyEntry, type Role } from "./keys.ts";

/** Who a request acts for. */
export interface Principal {
  readonly tenant: string;
  readonly role: Role;
  /** Ceilings of limits, where the key has its own. */
  readonly ceilings: Limits | null;
}

/** The keys of a server. */
export class KeyRing {
  readonly #entries: readonly KeyEntry[];

  /** @throws CprgError `invalid_argument` when one key is given twice: whose would it be */
  constructor(entries: readonly KeyEntry[]) {
    const owners = new Map<string, KeyEntry>();
    for (const entry of entries) {
      const hash = Buffer.from(entry.hash).toString("hex");
      const other = owners.get(hash);
      if (other !== undefined) throw givenTwice(entry, other);
      owners.set(hash, entry);
    }
    this.#entries = [...entries];
  }

  /** How many keys there are. */
  get size(): number {
    return this.#entries.length;
  }

  /**
   * Compares with every key in constant time, so that the time tells nothing of them.
   *
   * @returns null when no key matches
   */
  authenticate(key: string): Principal | null {
    if (key.length > KEY_CHARS_MAX) return null;
    const hash = hashKey(key);
    let found: KeyEntry | null = null;
    for (const entry of this.#entries) {
      if (timingSafeEqual(entry.hash, hash)) found = entry;
    }
    if (found === null) return null;
    return { tenant: found.tenant, role: found.role, ceilings: found.ceilings ?? null };
  }
}

function givenTwice(entry: KeyEntry, other: KeyEntry): Error {
  const of = ({ tenant, role }: KeyEntry) => `tenant "${tenant}" (${role})`;
  return invalid("keys", `Cannot use keys: one key is given for ${of(other)} and for ${of(entry)}`);
}
