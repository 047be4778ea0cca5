/** The key that a server makes at its first start, for this user's own commands. */

import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { CprgError } from "../core/errors.ts";
import { createWhole, readPrivateFile } from "../store/private-file.ts";

/** Random bytes in a key. */
const KEY_BYTES = 32;

/** A key, and whether it was made just now. */
export interface OwnKey {
  readonly key: string;
  readonly isNew: boolean;
}

/**
 * Reads the key of a file, or makes file and key.
 *
 * @param path its directory is made too, mode 0700
 * @throws CprgError `failed_precondition` when others may read the file, or it holds no key;
 *   `resource_exhausted` when the disk is full, which leaves no file
 */
export async function openKeyFile(path: string): Promise<OwnKey> {
  const existing = await readOwnKey(path);
  if (existing !== null) return { key: existing, isNew: false };
  const key = randomBytes(KEY_BYTES).toString("hex");
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const isNew = await createWhole(path, { text: `${key}\n`, mode: 0o600 });
  return isNew ? { key, isNew } : await openKeyFile(path);
}

/** The key of a file; null when there is none. */
async function readOwnKey(path: string): Promise<string | null> {
  const text = await readPrivateFile(path, (state, cause) => refused(path, state, cause));
  if (text === null) return null;
  const key = text.trim();
  if (/^[0-9a-f]{64}$/.test(key)) return key;
  throw refused(path, "it holds no key of cprg", undefined);
}

function refused(path: string, state: string, cause: unknown): CprgError {
  return new CprgError("failed_precondition", `Cannot use key file "${path}": ${state}`, {
    op: "open key file",
    hint: `chmod 600 it, or remove it to make a new key, or set CPRG_API_KEYS`,
    cause,
  });
}
