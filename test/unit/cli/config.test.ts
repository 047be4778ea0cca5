import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type ConfigInput,
  knownVariables,
  loadConfig,
  settingFlags,
  shownSettings,
} from "../../../src/cli/config.ts";
import {
  envName,
  flagName,
  SETTING_NAMES,
  SETTINGS,
  type Setting,
  tomlKey,
} from "../../../src/cli/config-table.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { hashKey } from "../../../src/tenancy/keys.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-config-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function toml(text: string): string {
  files += 1;
  const path = join(folder, `${files}.toml`);
  writeFileSync(path, text);
  return path;
}

function load(
  given: Partial<Omit<ConfigInput, "flags">> & { flags?: ConfigInput["flags"]; toml?: string },
) {
  const { toml: text, flags = {}, ...input } = given;
  const config = text === undefined ? {} : { config: toml(text) };
  return loadConfig({ uid: 1000, env: {}, ...input, flags: { ...config, ...flags } });
}

async function refusal(given: Parameters<typeof load>[0]): Promise<string> {
  try {
    await load(given);
  } catch (error) {
    if (CprgError.is(error)) return `${error.message} / ${error.hint ?? ""}`;
    throw error;
  }
  throw new Error("it was accepted");
}

const key = "0123456789abcdef0123";

describe("loadConfig()", () => {
  test("takes defaults where nothing is set", async () => {
    const { settings, sources, warnings } = await load({ uid: 0 });
    expect(settings).toMatchObject({
      addr: { host: "127.0.0.1", port: 7300 },
      dataDir: "/var/lib/cprg",
      db: "/var/lib/cprg/cprg.db",
      runDir: "/run/cprg",
      jobSlots: 4,
      tenantConcurrency: 2,
      env: "development",
      sandbox: "auto",
      recoverQueued: true,
    });
    expect(new Set(Object.values(sources))).toEqual(new Set(["default"]));
    expect(warnings).toEqual([]);
  });

  test("flags win over environment, environment over file", async () => {
    const text = "addr = '127.0.0.1:1'\njob_slots = 1\ntenant_concurrency = 1\n";
    const env = { CPRG_ADDR: "127.0.0.1:2", CPRG_JOB_SLOTS: "2" };
    const { settings, sources } = await load({ toml: text, env, flags: { addr: "127.0.0.1:3" } });
    expect(settings).toMatchObject({
      addr: { host: "127.0.0.1", port: 3 },
      jobSlots: 2,
      tenantConcurrency: 1,
    });
    expect(sources).toMatchObject({
      addr: "flag",
      jobSlots: "environment",
      tenantConcurrency: "file",
      db: "default",
    });
  });

  test("a second variable counts where the first is not set", async () => {
    expect((await load({ env: { CPRG_WORKERS: "7" } })).settings.jobSlots).toBe(7);
    const both = { CPRG_WORKERS: "7", CPRG_JOB_SLOTS: "3" };
    expect((await load({ env: both })).settings.jobSlots).toBe(3);
  });

  test("an empty variable is unset", async () => {
    expect((await load({ env: { CPRG_ADDR: "" } })).sources.addr).toBe("default");
  });

  test("a switch is off by flag, variable or file", async () => {
    for (const given of [
      { flags: { "no-recover-queued": true } },
      { env: { CPRG_RECOVER_QUEUED: "false" } },
      { toml: "recover_queued = false" },
    ]) {
      expect((await load(given)).settings.recoverQueued).toBe(false);
    }
  });

  test("every switch says what its flag does", () => {
    const switches = SETTING_NAMES.filter((name) => SETTINGS[name].kind === "switch");
    for (const name of switches) {
      const { doc, offDoc, isOptIn }: Setting<unknown> = SETTINGS[name];
      const flag = settingFlags()[flagName(name) ?? ""];
      if (isOptIn) {
        expect([flag?.doc, offDoc]).toEqual([doc, undefined]);
        continue;
      }
      expect(flag?.doc).toBe(offDoc ?? "no text for the flag");
      expect(flag?.doc).not.toContain(doc);
    }
    expect(switches).not.toEqual([]);
  });

  test("paths follow the data directory and the user's own directories", async () => {
    expect((await load({ flags: { "data-dir": "/d" } })).settings.db).toBe("/d/cprg.db");
    const env = { XDG_DATA_HOME: "/x", XDG_RUNTIME_DIR: "/r", HOME: "/h" };
    expect((await load({ env })).settings).toMatchObject({ dataDir: "/x/cprg", runDir: "/r/cprg" });
    const bare = { XDG_DATA_HOME: "relative", HOME: "/h" };
    expect((await load({ env: bare })).settings).toMatchObject({
      dataDir: "/h/.local/share/cprg",
      runDir: "/tmp/cprg-1000",
    });
  });

  test("reads lists, ceilings and keys of all sources", async () => {
    const hash = Buffer.from(hashKey(key)).toString("hex");
    const { settings, keys } = await load({
      toml: `binds = ["/a", "/b:/c"]
[ceilings]
wall_seconds = 600.5
[[keys]]
tenant = "t"
hash = "${hash}"
role = "admin"
ceilings = { mem_mb = 512 }
`,
      env: { CPRG_API_KEYS: `a:${key}1,${key}2`, CPRG_ALLOW_MISSING: "cgroup" },
      flags: { ceilings: ["mem_mb=8192"] },
    });
    expect(settings).toMatchObject({
      binds: [
        { source: "/a", target: "/a" },
        { source: "/b", target: "/c" },
      ],
      allowMissing: ["cgroup"],
      ceilings: { mem_mb: 8192, wall_seconds: 300 },
      apiKeys: [
        { tenant: "a", role: "tenant", hash: hashKey(`${key}1`) },
        { tenant: "default", role: "tenant", hash: hashKey(`${key}2`) },
      ],
    });
    expect(keys).toMatchObject([{ tenant: "t", role: "admin", ceilings: { mem_mb: 512 } }]);
    expect(Buffer.from(keys[0]?.hash ?? []).toString("hex")).toBe(hash);
  });

  test("warns of variables that nothing reads, and of no others", async () => {
    const env = { CPRG_ADR: "x", CPRG_KEY: "k", CPRG_CONFIG: "", OTHER: "y", CPRG_ZZZZZZZZZ: "" };
    expect((await load({ env })).warnings).toEqual([
      "CPRG_ADR is no variable of cprg; did you mean CPRG_ADDR?",
      "CPRG_ZZZZZZZZZ is no variable of cprg",
    ]);
  });

  test.each([
    [{ toml: "job_slot = 1" }, 'Cannot use key "job_slot"'],
    [{ toml: "job_slot = 1" }, "Did you mean job_slots?"],
    [{ toml: "config = 'x'" }, 'Cannot use key "config"'],
    [{ toml: "job_slots = '1'" }, "expected a whole number"],
    [{ toml: "job_slots = 1.5" }, "expected a whole number"],
    [{ toml: "addr = 7300" }, "expected a string"],
    [{ toml: "binds = '/a'" }, "expected a list of strings"],
    [{ toml: "recover_queued = 'no'" }, "expected true or false"],
    [{ toml: "ceilings = [1]" }, "expected a table of numbers"],
    [{ toml: "[ceilings]\nmem = 1" }, 'ceilings "mem": unknown limit'],
    [{ toml: "[ceilings]\nmem_mb = 0" }, 'ceilings "mem_mb=0"'],
    [{ toml: "keys = 'x'" }, "expected [[keys]] tables"],
    [{ toml: "[[keys]]\nkey = 'x'" }, "keys[1].key: unknown"],
    [{ toml: "[[keys]]\nhash = 'x'" }, "keys[1].hash"],
    [{ toml: "addr = " }, "Cannot read configuration"],
    [{ flags: { config: "/nonexistent" } }, "ENOENT"],
    [{ flags: { addr: "x" } }, 'Cannot use --addr "x"'],
    [{ env: { CPRG_ADDR: "1.2.3.4:99999" } }, 'Cannot use CPRG_ADDR "1.2.3.4:99999"'],
    [{ env: { CPRG_WORKERS: "0" } }, 'Cannot use CPRG_WORKERS "0"'],
    [{ env: { CPRG_ENV: "prodution" } }, 'Cannot use CPRG_ENV "prodution"'],
    [{ env: { CPRG_SANDBOX: "none" } }, 'Cannot use CPRG_SANDBOX "none"'],
    [{ env: { CPRG_BINDS: "relative" } }, 'Cannot use CPRG_BINDS "relative"'],
    [{ env: { CPRG_BINDS: "/a:/b:ro" } }, 'Cannot use CPRG_BINDS "/a:/b:ro"'],
    [{ env: { CPRG_LOG: "loud" } }, 'Cannot use CPRG_LOG "loud"'],
    [{ env: { CPRG_RECOVER_QUEUED: "maybe" } }, 'Cannot use CPRG_RECOVER_QUEUED "maybe"'],
    [{ env: { CPRG_API_KEYS: "short" } }, "Cannot use entry 1 of CPRG_API_KEYS"],
  ])("refuses %j", async (given, message) => {
    expect(await refusal(given)).toContain(message);
  });

  test.each([
    [0o646, "job_slots = 1", "others may change it"],
    [0o604, `api_keys = ["${key}"]`, "it holds keys, and others may read it"],
    [0o601, `admin_keys = ["${key}"]`, "it holds keys, and others may read it"],
    [0o644, "job_slots = 1", null],
    [0o644, `[[keys]]\nhash = "${"0f".repeat(32)}"`, null],
    [0o640, `api_keys = ["${key}"]`, null],
  ])("holds a file of mode %o with %s against its mode", async (mode, text, message) => {
    const path = toml(text);
    chmodSync(path, mode);
    const flags = { config: path };
    if (message === null) expect((await load({ flags })).settings).toBeDefined();
    else expect(await refusal({ flags })).toContain(message);
  });

  test("reads a pipe, and no more of a file than it may have", async () => {
    expect(await refusal({ flags: { config: "/dev/zero" } })).toContain("larger than");
    const fifo = join(folder, "fifo");
    expect(Bun.spawnSync(["mkfifo", "-m", "666", fifo]).exitCode).toBe(0);
    const writer = Bun.spawn(["/bin/sh", "-c", 'echo job_slots = 3 >"$0"', fifo]);
    expect((await load({ flags: { config: fifo } })).settings.jobSlots).toBe(3);
    expect(await writer.exited).toBe(0);
  });

  test("shows no key, neither in errors nor in the effective values", async () => {
    const secret = `default:${"short"}${"é"}secret`;
    expect(await refusal({ env: { CPRG_API_KEYS: secret } })).not.toContain("secret");
    const config = await load({ env: { CPRG_API_KEYS: key, CPRG_ADMIN_KEYS: `${key}9` } });
    const shown = JSON.stringify(shownSettings(config));
    expect(shown).not.toContain(key);
    expect(shown).not.toContain(Buffer.from(hashKey(key)).toString("hex"));
    expect(shown).toContain("1 (not shown)");
  });
});

describe("the table of settings", () => {
  test("gives every setting a TOML key and a variable, and a flag unless it is secret", () => {
    const flags = settingFlags();
    expect(knownVariables()).toEqual([...new Set(knownVariables())]);
    for (const name of SETTING_NAMES) {
      expect(tomlKey(name)).toMatch(/^[a-z]+(?:_[a-z]+)*$/);
      expect(knownVariables()).toContain(envName(name));
      const flag = flagName(name);
      if (flag !== null) expect(flags[flag]?.env).toBe(envName(name));
    }
    expect(SETTING_NAMES.filter((name) => flagName(name) === null)).toEqual([
      "agentKey",
      "apiKeys",
      "adminKeys",
    ]);
    expect(Object.keys(flags)).toHaveLength(SETTING_NAMES.length - 3 + 1);
  });

  test("holds the names of the contract", () => {
    const names = `ADDR DATA_DIR DB RUN_DIR JOB_SLOTS WORKERS TENANT_CONCURRENCY ENV
      SANDBOX ALLOW_MISSING BINDS PYTHON NODE BASH LOG API_KEYS ADMIN_KEYS CGROUP`;
    const known = knownVariables();
    for (const name of names.split(/\s+/)) expect(known).toContain(`CPRG_${name}`);
  });
});
