/**
 * The Ed25519 key (RFC 8032) that signs exports: `signing-key.pem` (0600) in the data directory,
 * and its public half beside it for whoever verifies.
 */

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
} from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { keyFingerprint, type SealKey } from "../core/chain.ts";
import { CprgError } from "../core/errors.ts";
import { type Log, silentLog } from "../core/log.ts";
import { createWhole, readPrivateFile, replaceWhole } from "./private-file.ts";

/** File name of the private key, PKCS #8 in PEM. */
export const PRIVATE_KEY_FILE = "signing-key.pem";
/** File name of the public key, SubjectPublicKeyInfo in PEM. */
export const PUBLIC_KEY_FILE = "signing-key.pub.pem";

/** A key pair that signs seals. */
export interface SigningKey extends SealKey {
  readonly publicKey: KeyObject;
  /** The public key as a PEM file holds it. */
  readonly publicPem: string;
}

/** A key that lives as long as this process: for logs that are kept nowhere else. */
export function ephemeralSigningKey(): SigningKey {
  return signingKey(generateKeyPairSync("ed25519").privateKey);
}

/**
 * The key of a data directory, which is made on first use. Processes that come at once get the same
 * one.
 *
 * @param options `log`: where it says that the public key beside it was another's, as it is when the
 *   private one was lost, and what follows from that
 * @throws CprgError `failed_precondition` when the file is no such key, or others may read it
 */
export async function openSigningKey(
  directory: string,
  { log = silentLog }: { readonly log?: Log } = {},
): Promise<SigningKey> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, PRIVATE_KEY_FILE);
  const found = await readPrivate(path);
  const key = signingKey(parsePrivate(path, found ?? (await createPrivate(path))));
  const kept = await keepPublic(join(directory, PUBLIC_KEY_FILE), key.publicPem);
  if (kept !== null) {
    const { fingerprint } = key;
    log.warn(found === null ? KEY_LOST : KEY_CHANGED, {
      path,
      fingerprint,
      earlier_public_key: kept,
    });
  }
  return key;
}

const CONSEQUENCE =
  "exports from before verify only with the earlier public key, which was kept, and later ones only with the new one, which verifiers need";
const KEY_LOST = `the signing key is gone and a new one was made: ${CONSEQUENCE}; if the key was not removed on purpose, restore it from a backup`;
const KEY_CHANGED = `the signing key is not the one whose public key was beside it: ${CONSEQUENCE}`;

function signingKey(privateKey: KeyObject): SigningKey {
  const publicKey = createPublicKey(privateKey);
  return {
    publicKey,
    publicPem: publicKey.export({ type: "spki", format: "pem" }).toString(),
    fingerprint: keyFingerprint(publicKey),
    sign: (body) => new Uint8Array(sign(null, Buffer.from(body), privateKey)),
  };
}

/** Null when there is no file. */
function readPrivate(path: string): Promise<string | null> {
  return readPrivateFile(path, (state, cause) =>
    cause === undefined
      ? refused(path, state, `chmod 600 ${path}, or remove it to make a new key`)
      : refused(path, state, "Make it a plain file of this user", cause),
  );
}

async function createPrivate(path: string): Promise<string> {
  const { privateKey } = generateKeyPairSync("ed25519");
  const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  if (await createWhole(path, { text: pem, mode: 0o600 })) return pem;
  const theirs = await readPrivate(path);
  if (theirs === null) throw refused(path, "it went away", "Start again");
  return theirs;
}

/**
 * A key that another one follows stays beside it: what it sealed is verified with it.
 *
 * @returns where the earlier one is now, or null when there was no other
 */
async function keepPublic(path: string, pem: string): Promise<string | null> {
  const before = (await Bun.file(path).exists()) ? await Bun.file(path).text() : null;
  if (before === pem) return null;
  let kept: string | null = null;
  if (before !== null) {
    const name = createHash("sha256").update(before).digest("hex").slice(0, 16);
    kept = `${path}.${name}`;
    await replaceWhole(kept, { text: before, mode: 0o644 });
  }
  await replaceWhole(path, { text: pem, mode: 0o644 });
  return kept;
}

function parsePrivate(path: string, pem: string): KeyObject {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === "ed25519") return key;
  } catch (error) {
    throw refused(path, "it holds no key", "Remove it to make a new key", error);
  }
  throw refused(path, "it holds no Ed25519 key", "Remove it to make a new key");
}

function refused(path: string, state: string, hint: string, cause?: unknown): CprgError {
  return new CprgError("failed_precondition", `Cannot use signing key "${path}": ${state}`, {
    op: "open signing key",
    hint,
    cause,
  });
}
