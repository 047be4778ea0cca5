/** Lists of API keys, as `CPRG_API_KEYS` and `CPRG_ADMIN_KEYS` hold them: `tenant:key` or bare keys. */

import { createHash, randomBytes } from "node:crypto";
import { invalid } from "../core/errors.ts";
import type { Role } from "../core/key.ts";
import type { Ceilings } from "../core/limits.ts";

export type { Role };

/** Tenant of a key that names none. */
export const DEFAULT_TENANT = "default";
/** Names of tenants. */
export const TENANT_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;
/** Shortest key: 16 characters of base64 are 96 bits. */
export const KEY_CHARS_MIN = 16;
/** Longest key: it must fit into a header. */
export const KEY_CHARS_MAX = 256;
/** Different characters that a key must have: `aaaaaaaaaaaaaaaa` is no secret. */
export const KEY_DISTINCT_CHARS_MIN = 6;
/** Keys of one list. */
export const KEYS_MAX = 1000;

/** Characters of RFC 6750's b64token, and a few more that survive headers, lists and shells. */
const KEY_CHARS = /^[A-Za-z0-9._~+/=@!^*-]+$/;

/** Longest name that people give a key. */
export const KEY_NAME_CHARS_MAX = 64;
/** Beginning of every key that is made here: leaks of it can be searched for. */
export const MADE_KEY_START = "cprg_";
/** Characters of a key that are shown: its beginning and four of 64 hexadecimal digits. */
const SHOWN_CHARS = MADE_KEY_START.length + 4;
const MADE_KEY_BYTES = 32;

/** A new key of 256 random bits, and what is shown of it. */
export function makeKey(): { readonly key: string; readonly prefix: string } {
  const key = `${MADE_KEY_START}${randomBytes(MADE_KEY_BYTES).toString("hex")}`;
  return { key, prefix: key.slice(0, SHOWN_CHARS) };
}

/** A key as it is kept: hashed. */
export interface KeyEntry {
  /** What the audit log calls it; one that was configured has its place in the configuration. */
  readonly id?: string;
  readonly tenant: string;
  readonly role: Role;
  /** SHA-256 of the key: enough for keys that are long and random, and cheap for every request. */
  readonly hash: Uint8Array;
  /** Ceilings of this key's jobs, where they differ from the server's. */
  readonly ceilings?: Ceilings;
  /** Requests in a window of a minute, where they differ from the server's. */
  readonly ratePerMin?: number;
  /** When it ends, in milliseconds since 1970. */
  readonly expiresAt?: number;
}

/** The form in which a key is kept and compared. */
export function hashKey(key: string): Uint8Array {
  return createHash("sha256").update(key, "utf8").digest();
}

/**
 * Parses a list: entries with commas between. The text before the first colon is the tenant.
 *
 * @param source name of the variable, for errors
 * @throws CprgError `invalid_argument` that says which entry is at fault and never shows a key
 */
export function parseKeyList(text: string, options: { role: Role; source: string }): KeyEntry[] {
  const { role, source } = options;
  const entries = text.split(",").map((entry) => entry.trim());
  if (entries.length > KEYS_MAX) {
    throw invalid(source, `Cannot use ${source}: ${entries.length} keys, at most ${KEYS_MAX}`);
  }
  return entries.map((entry, index) => {
    const place = { source, position: index + 1 };
    const colon = entry.indexOf(":");
    const tenant = colon < 0 ? DEFAULT_TENANT : entry.slice(0, colon);
    checkTenant(tenant, place);
    const key = entry.slice(colon + 1);
    checkKey(key, place);
    return { tenant, role, hash: hashKey(key) };
  });
}

interface Place {
  readonly source: string;
  readonly position: number;
}

function checkTenant(tenant: string, { source, position }: Place): void {
  if (TENANT_NAME.test(tenant)) return;
  // The text may be a key with a colon in it, so it is not shown.
  throw invalid(
    source,
    `Cannot use entry ${position} of ${source}: what is before the colon is no tenant name`,
    "Letters, digits, . _ and -, beginning and ending with a letter or digit, at most 63",
  );
}

function checkKey(key: string, { source, position }: Place): void {
  const refuse = (state: string): never => {
    throw invalid(
      source,
      `Cannot use entry ${position} of ${source}: ${state}`,
      "Make a key with: openssl rand -hex 16",
    );
  };
  if (key === "") refuse("the key is empty");
  if (key.length < KEY_CHARS_MIN) {
    refuse(`the key has ${key.length} characters, at least ${KEY_CHARS_MIN} are needed`);
  }
  if (key.length > KEY_CHARS_MAX) refuse(`the key has more than ${KEY_CHARS_MAX} characters`);
  if (!KEY_CHARS.test(key))
    refuse("the key has a character other than A-Z a-z 0-9 . _ ~ + / = @ ! ^ * -");
  if (new Set(key).size < KEY_DISTINCT_CHARS_MIN) {
    refuse(`the key has fewer than ${KEY_DISTINCT_CHARS_MIN} different characters`);
  }
}
