/** Who a presented key belongs to, now: keys come, end and are revoked while the server runs. */

import { timingSafeEqual } from "node:crypto";
import { type Clock, systemClock } from "../core/clock.ts";
import { invalid } from "../core/errors.ts";
import type { Ceilings } from "../core/limits.ts";
import { SECONDS_MAX } from "../core/limits.ts";
import { hashKey, KEY_CHARS_MAX, type KeyEntry, type Role } from "./keys.ts";

/** Who a request acts for. */
export interface Principal {
  /** Id of the key. */
  readonly keyId: string;
  readonly tenant: string;
  readonly role: Role;
  /** Ceilings that differ from the server's; null: none does. */
  readonly ceilings: Ceilings | null;
  /** Requests a minute, where the key has its own bound. */
  readonly ratePerMin: number | null;
  /** Aborted when the key is revoked or has ended: what goes on under it stops. */
  readonly revoked: AbortSignal;
}

interface Held {
  readonly entry: KeyEntry;
  readonly principal: Principal;
  readonly revoke: AbortController;
  expiresAt: number | null;
  timer: ReturnType<typeof setTimeout> | null;
}

/** The keys of a server. */
export class KeyRing {
  readonly #clock: Pick<Clock, "now">;
  /** By the start of the hash: what it tells by its time, no key can be made from. */
  readonly #byHash = new Map<string, Held[]>();
  readonly #byId = new Map<string, Held>();

  /** @throws CprgError `invalid_argument` when one key is given twice: whose would it be */
  constructor(entries: readonly KeyEntry[], clock: Pick<Clock, "now"> = systemClock) {
    this.#clock = clock;
    for (const [index, entry] of entries.entries()) {
      this.add({ ...entry, id: entry.id ?? `config-${index + 1}` });
    }
  }

  /** How many keys there are. */
  get size(): number {
    return this.#byId.size;
  }

  /**
   * Takes a key in.
   *
   * @throws CprgError `invalid_argument` when it is there already
   */
  add(entry: KeyEntry & { readonly id: string }): void {
    const place = placeOf(entry.hash);
    const neighbours = this.#byHash.get(place) ?? [];
    const other = neighbours.find(({ entry: { hash } }) => timingSafeEqual(hash, entry.hash));
    if (other !== undefined) throw givenTwice(entry, other.entry);
    const revoke = new AbortController();
    const principal: Principal = {
      keyId: entry.id,
      tenant: entry.tenant,
      role: entry.role,
      ceilings: entry.ceilings ?? null,
      ratePerMin: entry.ratePerMin ?? null,
      revoked: revoke.signal,
    };
    const held: Held = { entry, principal, revoke, expiresAt: null, timer: null };
    this.#byHash.set(place, [...neighbours, held]);
    this.#byId.set(entry.id, held);
    if (entry.expiresAt !== undefined) this.expire(entry.id, entry.expiresAt);
  }

  /** Ends a key at a time, in milliseconds since 1970; an earlier end stays. */
  expire(id: string, at: number): void {
    const held = this.#byId.get(id);
    if (held === undefined) return;
    held.expiresAt = Math.min(held.expiresAt ?? at, at);
    this.#endLater(held);
  }

  /** Ends a key at once, with what goes on under it. */
  revoke(id: string): void {
    const held = this.#byId.get(id);
    if (held === undefined) return;
    if (held.timer !== null) clearTimeout(held.timer);
    this.#byId.delete(id);
    const place = placeOf(held.entry.hash);
    const rest = (this.#byHash.get(place) ?? []).filter((other) => other !== held);
    if (rest.length === 0) this.#byHash.delete(place);
    else this.#byHash.set(place, rest);
    held.revoke.abort();
  }

  /**
   * Looks a key up by its hash, and compares hashes in constant time.
   *
   * @returns null when no key matches, or it has ended
   */
  authenticate(key: string): Principal | null {
    if (key.length > KEY_CHARS_MAX) return null;
    const hash = hashKey(key);
    const held = this.#byHash
      .get(placeOf(hash))
      ?.find(({ entry }) => timingSafeEqual(entry.hash, hash));
    if (held === undefined) return null;
    if (held.expiresAt === null || held.expiresAt > this.#clock.now()) return held.principal;
    this.revoke(held.principal.keyId);
    return null;
  }

  /** Forgets every key, and its timers. */
  close(): void {
    for (const { timer } of this.#byId.values()) if (timer !== null) clearTimeout(timer);
    this.#byId.clear();
    this.#byHash.clear();
  }

  /** Streams that are open must end with the key: a timer does that, as far as timers reach. */
  #endLater(held: Held): void {
    if (held.timer !== null) clearTimeout(held.timer);
    held.timer = null;
    const waitMs = (held.expiresAt ?? 0) - this.#clock.now();
    if (waitMs <= 0) {
      this.revoke(held.principal.keyId);
      return;
    }
    held.timer = setTimeout(() => this.#endLater(held), Math.min(waitMs, SECONDS_MAX * 1000));
    held.timer.unref();
  }
}

const PLACE_BYTES = 8;

function placeOf(hash: Uint8Array): string {
  return Buffer.from(hash.subarray(0, PLACE_BYTES)).toString("hex");
}

function givenTwice(entry: KeyEntry, other: KeyEntry): Error {
  const of = ({ tenant, role }: KeyEntry) => `tenant "${tenant}" (${role})`;
  return invalid("keys", `Cannot use keys: one key is given for ${of(other)} and for ${of(entry)}`);
}
