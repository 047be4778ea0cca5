import { describe, expect, test } from "bun:test";
import { loadConfig } from "../../../src/cli/config.ts";
import { engineOptions } from "../../../src/cli/engine.ts";
import { engineFlagValues } from "../../../src/cli/engine-flags.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { silentLog } from "../../../src/core/log.ts";

type Flags = Parameters<typeof engineFlagValues>[0];

async function policyOf(env: Record<string, string>, flags: Flags = {}) {
  const { settings } = await loadConfig({ uid: 0, env, flags: engineFlagValues(flags) });
  return engineOptions(settings, silentLog).seccomp;
}

describe("engineOptions() of seccomp", () => {
  test("is on, with nothing besides the profiles, by default", async () => {
    expect(await policyOf({})).toEqual({ isOn: true, allow: [] });
    expect(await policyOf({ CPRG_SECCOMP: "auto" })).toEqual({ isOn: true, allow: [] });
  });

  test("takes variables and flags", async () => {
    expect(await policyOf({ CPRG_SECCOMP: "off" })).toMatchObject({ isOn: false });
    expect(await policyOf({}, { seccomp: "off" })).toMatchObject({ isOn: false });
    const allow = ["sync", "vmsplice"];
    expect(await policyOf({ CPRG_SECCOMP_ALLOW: "vmsplice,sync" })).toMatchObject({ allow });
    expect(await policyOf({}, { "seccomp-allow": ["vmsplice", "sync"] })).toMatchObject({ allow });
    const flags = { "seccomp-allow": ["ptrace"], "seccomp-unsafe": true };
    expect(await policyOf({}, flags)).toMatchObject({ allow: ["ptrace"] });
  });

  test.each([
    [{ CPRG_SECCOMP_ALLOW: "ptrace" }, "CPRG_SECCOMP_ALLOW"],
    [{ CPRG_SECCOMP_ALLOW: "no_such_call" }, "CPRG_SECCOMP_ALLOW"],
    [{ CPRG_SECCOMP: "off", CPRG_ENV: "production" }, "CPRG_SECCOMP"],
    [{ CPRG_SECCOMP_UNSAFE: "1", CPRG_ENV: "production" }, "CPRG_SECCOMP_UNSAFE"],
  ])("refuses %j", async (env, field) => {
    const error: unknown = await policyOf(env as Record<string, string>).catch(
      (thrown: unknown) => thrown,
    );
    expect(CprgError.is(error) && error.field).toBe(field);
  });
});
