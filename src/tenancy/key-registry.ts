/**
 * The keys that are made while the server runs: kept in the store by their hash, in force in the
 * ring. A change is committed before it is said to be made.
 */

import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError, invalid } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import type { StoredKey } from "../core/key.ts";
import type { Ceilings } from "../core/limits.ts";
import type { KeyStore } from "../store/contract.ts";
import type { KeyRing } from "./key-ring.ts";
import { hashKey, KEY_NAME_CHARS_MAX, makeKey, type Role, TENANT_NAME } from "./keys.ts";
import { RATE_PER_MIN_MAX } from "./rate-windows.ts";

/** How long uses of keys are gathered before they are stored. */
const USES_FLUSH_MS = 5000;
/** Longest life and longest overlap of a key: a hundred years. */
export const KEY_SECONDS_MAX = 100 * 366 * 86_400;

/** What a new key is to be. */
export interface KeyRequest {
  readonly tenant: string;
  readonly role: Role;
  readonly name?: string;
  readonly ceilings?: Ceilings | null;
  readonly ratePerMin?: number | null;
  /** How long it lives; null: until it is revoked. */
  readonly expiresInSeconds?: number | null;
}

/** A key that was just made: the only time that it is known. */
export interface MadeKey {
  readonly key: string;
  readonly stored: StoredKey;
}

/** What a registry works with. */
export interface RegistryOptions {
  readonly store: KeyStore;
  /** Null where no server runs: changes are only stored. */
  readonly ring: KeyRing | null;
  readonly clock?: Clock;
}

/** Keys as administrators use them. */
export class KeyRegistry {
  readonly #store: KeyStore;
  readonly #ring: KeyRing | null;
  readonly #clock: Clock;
  readonly #keys: Map<string, StoredKey>;
  readonly #uses = new Map<string, number>();
  /** Keys that are getting their successor. */
  readonly #rotating = new Set<string>();
  #flush: ReturnType<typeof setTimeout> | null = null;

  private constructor({ store, ring, clock }: RegistryOptions, keys: readonly StoredKey[]) {
    this.#store = store;
    this.#ring = ring;
    this.#clock = clock ?? systemClock;
    this.#keys = new Map(keys.map((key) => [key.id, key]));
    for (const key of keys) if (isAlive(key, this.#clock.now())) this.#admit(key);
  }

  /** Reads the keys of a store and puts those that hold into the ring. */
  static async open(options: RegistryOptions): Promise<KeyRegistry> {
    return new KeyRegistry(options, await options.store.list());
  }

  /** Keys that hold now. */
  get aliveCount(): number {
    const now = this.#clock.now();
    return [...this.#keys.values()].filter((key) => isAlive(key, now)).length;
  }

  /** Every key, revoked ones too, oldest first. */
  list(): readonly StoredKey[] {
    return [...this.#keys.values()].map((key) => this.#withUse(key));
  }

  /** @throws CprgError `not_found` */
  get(id: string): StoredKey {
    const key = this.#keys.get(id);
    if (key === undefined) throw notFound();
    return this.#withUse(key);
  }

  /**
   * Makes a key.
   *
   * @throws CprgError `invalid_argument` naming the field at fault, `resource_exhausted` when there
   *   are too many
   */
  async create(request: KeyRequest): Promise<MadeKey> {
    checkRequest(request);
    const { key, prefix } = makeKey();
    const { expiresInSeconds: seconds = null } = request;
    const lifeMs = seconds === null ? null : Math.ceil(seconds * 1000);
    const now = this.#clock.now();
    const stored: StoredKey = {
      id: newId(),
      tenant: request.tenant,
      role: request.role,
      name: request.name ?? "",
      prefix,
      hash: hashKey(key),
      ceilings: request.ceilings ?? null,
      ratePerMin: request.ratePerMin ?? null,
      createdAt: now,
      lastUsedAt: null,
      lifeMs,
      expiresAt: lifeMs === null ? null : now + lifeMs,
      rotatedAt: null,
      revokedAt: null,
    };
    await this.#store.insert(stored);
    this.#keys.set(stored.id, stored);
    this.#admit(stored);
    return { key, stored };
  }

  /**
   * Revokes a key: no request passes any more, and open streams end.
   *
   * @throws CprgError `not_found`
   */
  async revoke(id: string): Promise<StoredKey> {
    const known = this.get(id);
    // First, because a store that fails must not keep a key alive.
    this.#ring?.revoke(id);
    const key = await this.#store.change(id, { revokedAt: this.#clock.now() });
    const revoked = key ?? known;
    this.#keys.set(id, revoked);
    return revoked;
  }

  /**
   * Makes a key like another, once, which ends after an overlap. The new one lives as long as the
   * old one was meant to.
   *
   * @param overlapSeconds 0: it ends at once
   * @throws CprgError `not_found`; `failed_precondition` for a key that has ended, or was rotated
   */
  async rotate(id: string, overlapSeconds: number): Promise<MadeKey> {
    checkSeconds("overlap_seconds", overlapSeconds, 0);
    const old = this.get(id);
    if (!isAlive(old, this.#clock.now())) throw keyEnded(id);
    if (old.rotatedAt !== null || this.#rotating.has(id)) throw keyRotated(id);
    this.#rotating.add(id);
    try {
      return await this.#replace(old, overlapSeconds);
    } finally {
      this.#rotating.delete(id);
    }
  }

  async #replace(old: StoredKey, overlapSeconds: number): Promise<MadeKey> {
    const { id, lifeMs } = old;
    const expiresInSeconds = lifeMs === null ? null : lifeMs / 1000;
    const made = await this.create({ ...old, expiresInSeconds });
    const rotatedAt = this.#clock.now();
    if (overlapSeconds === 0) {
      await this.revoke(id);
      return made;
    }
    const expiresAt = rotatedAt + Math.ceil(overlapSeconds * 1000);
    const changed = await this.#store.change(id, { expiresAt, rotatedAt });
    if (changed !== null) this.#keys.set(id, changed);
    this.#ring?.expire(id, expiresAt);
    return made;
  }

  /**
   * Forgets keys that ended before a time, so that there is room for others.
   *
   * @param before milliseconds since 1970
   */
  async forgetEnded(before: number): Promise<void> {
    const ended = [...this.#keys.values()].filter((key) => endOf(key) < before);
    if (ended.length === 0) return;
    await this.#store.remove(ended.map(({ id }) => id));
    for (const { id } of ended) this.#keys.delete(id);
  }

  /** Notes that a key was used; stored a little later, many at once. */
  noteUse(id: string): void {
    if (!this.#keys.has(id)) return;
    this.#uses.set(id, this.#clock.now());
    if (this.#flush !== null) return;
    this.#flush = setTimeout(() => void this.#storeUses(), USES_FLUSH_MS);
    this.#flush.unref();
  }

  /** Stores what is not stored yet. */
  async close(): Promise<void> {
    await this.#storeUses();
    this.#ring?.close();
  }

  #admit({ ceilings, ratePerMin, expiresAt, ...key }: StoredKey): void {
    this.#ring?.add({
      ...key,
      ...(ceilings === null ? {} : { ceilings }),
      ...(ratePerMin === null ? {} : { ratePerMin }),
      ...(expiresAt === null ? {} : { expiresAt }),
    });
  }

  #withUse(key: StoredKey): StoredKey {
    return { ...key, lastUsedAt: this.#uses.get(key.id) ?? key.lastUsedAt };
  }

  /** A use that cannot be stored is not worth a failure: it is kept and tried again with the next. */
  async #storeUses(): Promise<void> {
    if (this.#flush !== null) clearTimeout(this.#flush);
    this.#flush = null;
    const uses = [...this.#uses];
    await Promise.allSettled(
      uses.map(async ([id, lastUsedAt]) => {
        const key = await this.#store.change(id, { lastUsedAt });
        if (key !== null) this.#keys.set(id, key);
        if (this.#uses.get(id) === lastUsedAt) this.#uses.delete(id);
      }),
    );
  }
}

/** When a key ended or will end; infinite for one that is to stay. */
function endOf({ revokedAt, expiresAt }: StoredKey): number {
  const never = Number.POSITIVE_INFINITY;
  return Math.min(revokedAt ?? never, expiresAt ?? never);
}

/** Whether a key still holds. */
export function isAlive({ revokedAt, expiresAt }: StoredKey, now: number): boolean {
  return revokedAt === null && (expiresAt === null || expiresAt > now);
}

function checkRequest({ tenant, name, ratePerMin, expiresInSeconds }: KeyRequest): void {
  if (!TENANT_NAME.test(tenant)) {
    const hint =
      "Letters, digits, . _ and -, beginning and ending with a letter or digit, at most 63";
    throw invalid("tenant", "Cannot use tenant: no tenant name", hint);
  }
  if (name !== undefined && !isName(name)) {
    const hint = `At most ${KEY_NAME_CHARS_MAX} characters, no control characters`;
    throw invalid("name", "Cannot use name: too long, or not printable", hint);
  }
  const isRate = Number.isInteger(ratePerMin) && Number(ratePerMin) >= 1;
  if (ratePerMin != null && !(isRate && ratePerMin <= RATE_PER_MIN_MAX)) {
    const expected = `a whole number from 1 to ${RATE_PER_MIN_MAX}`;
    throw invalid("rate_per_min", `Cannot use rate_per_min: expected ${expected}`);
  }
  if (expiresInSeconds != null) checkSeconds("expires_in_seconds", expiresInSeconds, 1);
}

function isName(name: string): boolean {
  return name.length <= KEY_NAME_CHARS_MAX && !/[\p{Cc}\p{Cf}\p{Cs}]/u.test(name);
}

function checkSeconds(field: string, seconds: number, least: number): void {
  if (seconds >= least && seconds <= KEY_SECONDS_MAX) return;
  throw invalid(field, `Cannot use ${field}: expected ${least} to ${KEY_SECONDS_MAX} seconds`);
}

/** The id is not repeated: it may be a key that was pasted in its place. */
function notFound(): CprgError {
  return new CprgError("not_found", "Cannot find key: there is none with this id", {
    reason: "KEY_NOT_FOUND",
    hint: "GET /v1/keys and cprg key list have the ids; keys of the configuration are changed there",
  });
}

function keyRotated(id: string): CprgError {
  return new CprgError("failed_precondition", `Cannot rotate key "${id}": it has its successor`, {
    op: "rotate key",
    reason: "KEY_ROTATED",
    hint: "Rotate that one, or make a new key",
  });
}

function keyEnded(id: string): CprgError {
  return new CprgError("failed_precondition", `Cannot rotate key "${id}": it has ended`, {
    op: "rotate key",
    reason: "KEY_ENDED",
  });
}
