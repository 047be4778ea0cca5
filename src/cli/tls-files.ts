/** The certificate and key that a server shows: read once, at its start, and looked at. */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { CprgError } from "../core/errors.ts";
import { configError } from "./config.ts";

/** Largest file that is read, in bytes: a chain of certificates has a few KiB. */
const PEM_BYTES_MAX = 1024 * 1024;

/** What TLS is served with, in PEM. */
export interface TlsFiles {
  readonly cert: string;
  readonly key: string;
}

/** Where the files are, and who reads them. */
export interface TlsPaths {
  readonly certPath: string | null;
  readonly keyPath: string | null;
  readonly uid: number;
  /** Milliseconds since 1970. */
  readonly now: number;
}

/**
 * Reads both files; null when neither is named.
 *
 * @throws CprgError `failed_precondition` when one of the two is missing or unreadable, others can
 *   read the key, the certificate is not of this key, or its time is over
 */
export async function readTlsFiles(paths: TlsPaths): Promise<TlsFiles | null> {
  const { certPath, keyPath, uid, now } = paths;
  if (certPath === null && keyPath === null) return null;
  if (certPath === null || keyPath === null) {
    throw configError(
      "Cannot serve TLS: a certificate needs its key, and a key its certificate",
      "Set both: --tls-cert FILE --tls-key FILE",
    );
  }
  const cert = await readPem(certPath);
  const key = await readPem(keyPath, (file) => checkPrivate(keyPath, { ...file, reader: uid }));
  checkPair({ cert, key, certPath, keyPath, now });
  return { cert, key };
}

interface FileFacts {
  readonly mode: number;
  readonly uid: number;
}

async function readPem(path: string, check?: (file: FileFacts) => void): Promise<string> {
  let file: Awaited<ReturnType<typeof open>>;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unreadable";
    throw refused(path, code, "Name a PEM file that this user can read");
  }
  try {
    const stats = await file.stat();
    if (!stats.isFile() || stats.size > PEM_BYTES_MAX) {
      throw refused(path, "it is no PEM file", "Name a file with BEGIN and END lines");
    }
    check?.(stats);
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/** A group may read it, as Debian's ssl-cert does; nobody else may. */
function checkPrivate(path: string, file: FileFacts & { readonly reader: number }): void {
  if ((file.mode & 0o027) !== 0) {
    throw refused(path, "others may read or change it", `chmod 600 ${path}`);
  }
  if (file.uid !== 0 && file.uid !== file.reader) {
    throw refused(
      path,
      "it belongs to another user",
      `chown it to the user of the server, or root`,
    );
  }
}

function checkPair(files: TlsFiles & { certPath: string; keyPath: string; now: number }): void {
  const { certPath, keyPath, now } = files;
  const certificate = parse(certPath, () => new X509Certificate(files.cert));
  const key = parse(keyPath, () => createPrivateKey(files.key));
  if (!certificate.checkPrivateKey(key)) {
    throw refused(
      keyPath,
      `it is not the key of "${certPath}"`,
      "Name the pair that belongs together",
    );
  }
  if (Date.parse(certificate.validTo) < now) {
    throw refused(certPath, `it was valid until ${certificate.validTo}`, "Renew the certificate");
  }
}

/** What cannot be parsed is not repeated: it may be a part of a key. */
function parse<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch {
    throw refused(path, "it cannot be parsed", "It must be PEM, and the key without a passphrase");
  }
}

function refused(path: string, state: string, hint: string): CprgError {
  return new CprgError("failed_precondition", `Cannot serve TLS with "${path}": ${state}`, {
    reason: "TLS_FILES",
    hint,
  });
}
