/** The key that a server makes at its first start, for this user's own commands. */

import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import { CprgError } from "../core/errors.ts";

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
 * @throws CprgError `failed_precondition` when others may read the file, or it holds no key
 */
export async function openKeyFile(path: string): Promise<OwnKey> {
  const existing = await readOwnKey(path);
  if (existing !== null) return { key: existing, isNew: false };
  const key = randomBytes(KEY_BYTES).toString("hex");
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, "wx", 0o600).catch((error: unknown) => {
    throw refused(path, codeOf(error), error);
  });
  try {
    await file.chmod(0o600);
    await file.writeFile(`${key}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  return { key, isNew: true };
}

/** The key of a file; null when there is none. */
async function readOwnKey(path: string): Promise<string | null> {
  const file = await openExisting(path);
  if (file === null) return null;
  try {
    const { mode } = await file.stat();
    if ((mode & 0o077) !== 0) throw refused(path, "others may read it", undefined);
    const key = (await file.readFile("utf8")).trim();
    if (/^[0-9a-f]{64}$/.test(key)) return key;
    throw refused(path, "it holds no key of cprg", undefined);
  } finally {
    await file.close();
  }
}

async function openExisting(path: string) {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw refused(path, codeOf(error), error);
  }
}

function refused(path: string, state: string, cause: unknown): CprgError {
  return new CprgError("failed_precondition", `Cannot use key file "${path}": ${state}`, {
    op: "open key file",
    hint: `chmod 600 it, or remove it to make a new key, or set CPRG_API_KEYS`,
    cause,
  });
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unreadable";
}
