import { expect, test } from "bun:test";
import { generateKeyPairSync, verify } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { silentLog } from "../../src/core/log.ts";
import { parsePublicKey } from "../../src/core/verify.ts";
import {
  ephemeralSigningKey,
  openSigningKey,
  PRIVATE_KEY_FILE,
  PUBLIC_KEY_FILE,
} from "../../src/store/signing-key.ts";
import { failure, TempDir } from "./samples.ts";

const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);

const UMASKS = [0, 0o022, 0o077];

test.each(UMASKS)("openSigningKey() makes both keys and nothing else, umask %d", async (bits) => {
  using folder = new TempDir();
  const umask = process.umask(bits);
  try {
    const directory = folder.join("sub/keys");
    const key = await openSigningKey(directory);
    expect(readdirSync(directory).sort()).toEqual([PRIVATE_KEY_FILE, PUBLIC_KEY_FILE].sort());
    expect(mode(`${directory}/${PRIVATE_KEY_FILE}`)).toBe("600");
    expect(mode(`${directory}/${PUBLIC_KEY_FILE}`)).toBe("644");
    expect(mode(directory)).toBe("700");
    const pem = readFileSync(`${directory}/${PUBLIC_KEY_FILE}`, "utf8");
    expect(pem).toBe(key.publicPem);
    expect(verify(null, Buffer.from("text ü"), parsePublicKey(pem), key.sign("text ü"))).toBe(true);
    expect(key.sign("x")).toHaveLength(64);
  } finally {
    process.umask(umask);
  }
});

test("openSigningKey() gives the same key again, and one key to all who come at once", async () => {
  using folder = new TempDir();
  const keys = await Promise.all(Array.from({ length: 20 }, () => openSigningKey(folder.path)));
  keys.push(await openSigningKey(folder.path));
  expect(new Set(keys.map(({ fingerprint }) => fingerprint)).size).toBe(1);
  expect(readdirSync(folder.path)).toHaveLength(2);
});

test("openSigningKey() puts the public key right when it is missing or another's", async () => {
  using folder = new TempDir();
  const { publicPem } = await openSigningKey(folder.path);
  const path = folder.join(PUBLIC_KEY_FILE);
  writeFileSync(path, ephemeralSigningKey().publicPem);
  await openSigningKey(folder.path);
  expect(readFileSync(path, "utf8")).toBe(publicPem);
});

test("openSigningKey() keeps the public key of a lost one, for what that one sealed", async () => {
  using folder = new TempDir();
  const { publicPem } = await openSigningKey(folder.path);
  rmSync(folder.join(PRIVATE_KEY_FILE));
  const { publicPem: next } = await openSigningKey(folder.path);
  expect(next).not.toBe(publicPem);
  const others = readdirSync(folder.path).filter((name) => name.startsWith(`${PUBLIC_KEY_FILE}.`));
  expect(others.map((name) => readFileSync(folder.join(name), "utf8"))).toEqual([publicPem]);
});

test("openSigningKey() warns of a lost key, once, with what follows from it", async () => {
  using folder = new TempDir();
  const warnings: [string, unknown][] = [];
  const log = {
    ...silentLog,
    warn: (...said: [string, unknown?]) => void warnings.push([said[0], said[1]]),
  };
  const { publicPem } = await openSigningKey(folder.path, { log });
  await openSigningKey(folder.path, { log });
  expect(warnings).toEqual([]);
  rmSync(folder.join(PRIVATE_KEY_FILE));
  const { fingerprint } = await openSigningKey(folder.path, { log });
  await openSigningKey(folder.path, { log });
  expect(warnings).toHaveLength(1);
  const [[message, fields] = ["", {}]] = warnings;
  expect(message).toStartWith(
    "the signing key is gone and a new one was made: exports from before",
  );
  expect(message).toContain("restore it from a backup");
  const kept = (fields as Record<string, string>)["earlier_public_key"] ?? "";
  expect(readFileSync(kept, "utf8")).toBe(publicPem);
  expect(fields).toMatchObject({ path: folder.join(PRIVATE_KEY_FILE), fingerprint });
});

test("openSigningKey() warns of a public key that is another's, and not of a missing one", async () => {
  using folder = new TempDir();
  const warnings: string[] = [];
  const log = { ...silentLog, warn: (message: string) => void warnings.push(message) };
  await openSigningKey(folder.path, { log });
  rmSync(folder.join(PUBLIC_KEY_FILE));
  await openSigningKey(folder.path, { log });
  expect(warnings).toEqual([]);
  writeFileSync(folder.join(PUBLIC_KEY_FILE), ephemeralSigningKey().publicPem);
  await openSigningKey(folder.path, { log });
  expect(warnings).toEqual([
    expect.stringContaining("is not the one whose public key was beside it"),
  ]);
});

test("openSigningKey() refuses a key that others may read", async () => {
  using folder = new TempDir();
  await openSigningKey(folder.path);
  for (const bits of [0o640, 0o604, 0o660]) {
    chmodSync(folder.join(PRIVATE_KEY_FILE), bits);
    const error = await failure(openSigningKey(folder.path));
    expect(error.code).toBe("failed_precondition");
    expect(error.hint).toContain("chmod 600");
  }
});

test("openSigningKey() refuses what is no Ed25519 key, and leaves it", async () => {
  using folder = new TempDir();
  const path = folder.join(PRIVATE_KEY_FILE);
  const other = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  for (const text of ["", "nonsense", other.export({ type: "pkcs8", format: "pem" }).toString()]) {
    writeFileSync(path, text, { mode: 0o600 });
    expect((await failure(openSigningKey(folder.path))).code).toBe("failed_precondition");
    expect(readFileSync(path, "utf8")).toBe(text);
  }
  expect(readdirSync(folder.path)).toEqual([PRIVATE_KEY_FILE]);
});

test("openSigningKey() follows no link", async () => {
  using folder = new TempDir();
  const elsewhere = folder.join("elsewhere");
  mkdirSync(elsewhere);
  const keys = folder.join("keys");
  await openSigningKey(keys);
  renameSync(`${keys}/${PRIVATE_KEY_FILE}`, `${elsewhere}/key.pem`);
  symlinkSync(`${elsewhere}/key.pem`, `${keys}/${PRIVATE_KEY_FILE}`);
  expect((await failure(openSigningKey(keys))).code).toBe("failed_precondition");
});
