/**
 * The control plane's own keys, each in a file of the data directory that its user alone can read:
 * what signs workers' tokens, and what seals environments of tasks that wait. They never leave it.
 */

import {
  createPrivateKey,
  createSecretKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import { base64Bytes } from "../core/text-rules.ts";
import { createWhole, readPrivateFile } from "./private-file.ts";

/** File of the Ed25519 key that signs tokens, PKCS #8 in PEM. */
export const TOKEN_KEY_FILE = "worker-token-key.pem";
/** File of the key that seals environments: 32 bytes in base64. */
export const ENV_KEY_FILE = "task-env.key";

const ENV_KEY_BYTES = 32;

/** The keys. */
export interface ControlKeys {
  /** Private, Ed25519. */
  readonly token: KeyObject;
  /** Secret, 32 bytes. */
  readonly env: KeyObject;
}

/** Keys that live as long as this process: what they signed and sealed goes with it. */
export function ephemeralControlKeys(): ControlKeys {
  return {
    token: generateKeyPairSync("ed25519").privateKey,
    env: createSecretKey(randomBytes(ENV_KEY_BYTES)),
  };
}

/**
 * The keys of a data directory, which are made on first use. Processes that come at once get the
 * same ones.
 *
 * @throws CprgError `failed_precondition` when a file is no such key, or others may read it
 */
export async function openControlKeys(directory: string): Promise<ControlKeys> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const tokenPath = join(directory, TOKEN_KEY_FILE);
  const envPath = join(directory, ENV_KEY_FILE);
  const pem = await openKey(tokenPath, () =>
    generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  );
  const env = await openKey(envPath, () => `${randomBytes(ENV_KEY_BYTES).toString("base64")}\n`);
  return { token: tokenKey(tokenPath, pem), env: envKey(envPath, env.trim()) };
}

async function openKey(path: string, make: () => string): Promise<string> {
  const refusal = (state: string, cause?: unknown) => refused(path, state, cause);
  const known = await readPrivateFile(path, refusal);
  if (known !== null) return known;
  const text = make();
  if (await createWhole(path, { text, mode: 0o600 })) return text;
  const theirs = await readPrivateFile(path, refusal);
  if (theirs === null) throw refusal("it went away while it was opened");
  return theirs;
}

function tokenKey(path: string, pem: string): KeyObject {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === "ed25519") return key;
  } catch (cause) {
    throw refused(path, "it holds no key", cause);
  }
  throw refused(path, "it holds no Ed25519 key");
}

function envKey(path: string, base64: string): KeyObject {
  try {
    if (base64Bytes("key", base64) === ENV_KEY_BYTES) {
      return createSecretKey(Buffer.from(base64, "base64"));
    }
  } catch (cause) {
    throw refused(path, "it holds no base64", cause);
  }
  throw refused(path, `it does not hold ${ENV_KEY_BYTES} bytes`);
}

function refused(path: string, state: string, cause?: unknown): CprgError {
  return new CprgError("failed_precondition", `Cannot use key "${path}": ${state}`, {
    op: "open control keys",
    hint: `chmod 600 ${path}, or remove it: what it signed or sealed is of no use then`,
    ...(cause === undefined ? {} : { cause }),
  });
}
