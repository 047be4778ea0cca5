// Keys: where clients find theirs and to whom they send it; what a server starts with.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serverAccess } from "../../../src/cli/client-flags.ts";
import { type ConfigInput, loadConfig } from "../../../src/cli/config.ts";
import { openKeyFile } from "../../../src/cli/key-file.ts";
import { checkExposure, printSettings, serverKeys } from "../../../src/cli/serve-config.ts";
import { memoryTerminal } from "./memory-terminal.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-keys-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const key = "0123456789abcdef0123";
const none = { server: undefined, key: undefined, "data-dir": undefined };

function load(input: Partial<ConfigInput>) {
  return loadConfig({ uid: 1000, env: {}, flags: {}, ...input });
}

describe("serverAccess()", () => {
  test("takes the key of this host's data directory for a server on this host only", async () => {
    const made = await openKeyFile(join(folder, "d", "api-key"));
    const flags = { ...none, "data-dir": join(folder, "d") };
    for (const server of [undefined, "http://localhost:1", "http://[::1]:1", "http://127.8.9.1"]) {
      expect((await serverAccess({ ...flags, server }, memoryTerminal())).key).toBe(made.key);
    }
    for (const server of [
      "http://example.org",
      "http://127.0.0.1.example.org",
      "http://10.0.0.1",
    ]) {
      expect((await serverAccess({ ...flags, server }, memoryTerminal())).key).toBeNull();
    }
  });

  test("prefers the key that it is given, and refuses one that no header can carry", async () => {
    const flags = { ...none, "data-dir": join(folder, "d"), key: "given" };
    expect((await serverAccess(flags, memoryTerminal())).key).toBe("given");
    const bad = serverAccess({ ...flags, key: "a\nb" }, memoryTerminal());
    await expect(bad).rejects.toThrow("visible ASCII");
  });

  test("sends none where there is none", async () => {
    const flags = { ...none, "data-dir": join(folder, "nothing") };
    expect((await serverAccess(flags, memoryTerminal())).key).toBeNull();
  });
});

describe("openKeyFile()", () => {
  test("makes a random key once, mode 0600 in a directory of mode 0700", async () => {
    const path = join(folder, "new", "api-key");
    const first = await openKeyFile(path);
    expect(first).toMatchObject({ isNew: true, key: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(folder, "new")).mode & 0o777).toBe(0o700);
    expect(await openKeyFile(path)).toEqual({ key: first.key, isNew: false });
    expect((await openKeyFile(join(folder, "other", "api-key"))).key).not.toBe(first.key);
  });

  test("refuses a file that others may read, that is a link, or holds something else", async () => {
    const open = join(folder, "open");
    await openKeyFile(open);
    chmodSync(open, 0o640);
    await expect(openKeyFile(open)).rejects.toThrow("others may read it");
    const link = join(folder, "link");
    symlinkSync(join(folder, "new", "api-key"), link);
    await expect(openKeyFile(link)).rejects.toThrow("ELOOP");
    const text = join(folder, "text");
    writeFileSync(text, "hello", { mode: 0o600 });
    await expect(openKeyFile(text)).rejects.toThrow("holds no key");
  });
});

describe("checkExposure()", () => {
  test.each([
    [{ CPRG_ADDR: "127.0.0.1:1" }, null],
    [{ CPRG_ADDR: "[::1]:1" }, null],
    [{ CPRG_ADDR: "0.0.0.0:1" }, "no key is set"],
    [{ CPRG_ADDR: ":1" }, "no key is set"],
    [{ CPRG_ADDR: "example.org:1" }, "no key is set"],
    [{ CPRG_ENV: "production" }, "Cannot start in production: no key is set"],
    [{ CPRG_ADDR: "0.0.0.0:1", CPRG_API_KEYS: key }, null],
    [{ CPRG_ENV: "release", CPRG_ADMIN_KEYS: key }, null],
    [{ CPRG_ADDR: "127.0.0.1:1", CPRG_SANDBOX: "off" }, null],
    [
      { CPRG_ADDR: "0.0.0.0:1", CPRG_API_KEYS: key, CPRG_SANDBOX: "off" },
      'Cannot listen on "0.0.0.0:1": the sandbox is off, and others can reach it',
    ],
    [
      { CPRG_ADDR: "[::]:1", CPRG_ADMIN_KEYS: key, CPRG_SANDBOX: "off" },
      'Cannot listen on "[::]:1": the sandbox is off, and others can reach it',
    ],
    [
      { CPRG_ENV: "production", CPRG_API_KEYS: key, CPRG_SANDBOX: "off" },
      "Cannot start in production: the sandbox is off",
    ],
  ])("of %j", async (env, message) => {
    const config = await load({ env });
    if (message === null) expect(() => checkExposure(config)).not.toThrow();
    else expect(() => checkExposure(config)).toThrow(message);
  });
});

test("serverKeys() makes a key only where none is configured", async () => {
  const dataDir = join(folder, "server");
  const flags = { "data-dir": dataDir };
  const configured = await serverKeys(await load({ flags, env: { CPRG_API_KEYS: `t:${key}` } }));
  expect(configured.madeKey).toBeNull();
  expect(configured.ring.authenticate(key)).toMatchObject({ tenant: "t", role: "tenant" });

  const made = await serverKeys(await load({ flags }));
  expect(made.ring.authenticate(made.madeKey ?? "")).toMatchObject({
    tenant: "default",
    role: "admin",
  });
  expect(made.ring.authenticate(key)).toBeNull();
  expect((await serverKeys(await load({ flags }))).madeKey).toBeNull();
});

test("a key of two owners is refused, by --check as by a start", async () => {
  const flags = { "data-dir": join(folder, "twice") };
  const config = await load({ flags, env: { CPRG_API_KEYS: `t:${key}`, CPRG_ADMIN_KEYS: key } });
  const twice = "one key is given for";
  await expect(serverKeys(config)).rejects.toThrow(twice);
  const terminal = memoryTerminal();
  await expect(printSettings(config, { json: false, terminal })).rejects.toThrow(twice);
  expect(terminal.out()).toBe("");
});
