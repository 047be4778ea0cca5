import { expect } from "bun:test";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { readTlsFiles, type TlsPaths } from "../../../src/cli/tls-files.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { requireHost } from "../../helpers/host.ts";
import { failure, TempDir } from "../../store/samples.ts";

const { test } = requireHost({ programs: ["openssl"] });
const now = Date.now();
const uid = process.getuid?.() ?? 0;

function read(paths: Partial<TlsPaths>) {
  return readTlsFiles({ certPath: null, keyPath: null, uid, now, ...paths });
}

test("a pair is read; none is none; one alone is refused", async () => {
  using folder = new TempDir();
  const { cert: certPath, key: keyPath } = makeCertificate(folder.path, "one");
  expect(await read({})).toBeNull();
  expect(await read({ certPath, keyPath })).toEqual({
    cert: readFileSync(certPath, "utf8"),
    key: readFileSync(keyPath, "utf8"),
  });
  for (const paths of [{ certPath }, { keyPath }]) {
    const { code, hint } = await failure(read(paths));
    expect([code, hint]).toEqual(["failed_precondition", expect.stringContaining("--tls-key")]);
  }
});

test("a key that others can read or change is refused, and one for a group of readers is not", async () => {
  using folder = new TempDir();
  const { cert: certPath, key: keyPath } = makeCertificate(folder.path, "one");
  for (const mode of [0o644, 0o604, 0o660, 0o601, 0o622]) {
    chmodSync(keyPath, mode);
    expect((await failure(read({ certPath, keyPath }))).message).toContain("others may read");
  }
  for (const mode of [0o400, 0o600, 0o640]) {
    chmodSync(keyPath, mode);
    expect(await read({ certPath, keyPath })).not.toBeNull();
  }
});

test("what does not belong together, is over, or is no PEM is refused without a word of the key", async () => {
  using folder = new TempDir();
  const one = makeCertificate(folder.path, "one");
  const two = makeCertificate(folder.path, "two");
  const refusal = async (paths: Partial<TlsPaths>): Promise<string> => {
    const { message, reason } = await failure(read(paths));
    expect(reason).toBe("TLS_FILES");
    return message;
  };
  expect(await refusal({ certPath: one.cert, keyPath: two.key })).toContain("not the key of");
  const later = now + 3 * 86_400_000;
  expect(await refusal({ certPath: one.cert, keyPath: one.key, now: later })).toContain(
    "valid until",
  );
  expect(await refusal({ certPath: folder.join("none"), keyPath: one.key })).toContain("ENOENT");
  expect(await refusal({ certPath: folder.path, keyPath: one.key })).toContain("no PEM file");
  writeFileSync(two.key, "-----BEGIN PRIVATE KEY-----\nsecret-part\n-----END PRIVATE KEY-----\n");
  const message = await refusal({ certPath: one.cert, keyPath: two.key });
  expect(message).toContain("cannot be parsed");
  expect(message).not.toContain("secret-part");
});
