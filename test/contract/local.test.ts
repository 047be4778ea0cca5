import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { rmSync } from "node:fs";
import type { LocalEngine } from "../../src/sandbox/engine.ts";
import { localSandboxProvider } from "../../src/sandbox/local-sandbox-provider.ts";
import { requireHost } from "../helpers/host.ts";
import { makeDirs, openTestEngine } from "../sandbox/test-engine.ts";
import { describeSandboxProvider, PROVIDER_CHECKS, runCheck } from "./sandbox-provider.ts";
import type { ProviderUnderTest } from "./sandbox-provider-check.ts";
import { PROVIDER_MUTANTS } from "./sandbox-provider-mutants.ts";

const host = requireHost({ sandbox: true });

host.describe("the local engine", () => {
  setDefaultTimeout(120_000);
  const dirs = makeDirs();
  let engine: LocalEngine;
  beforeAll(async () => {
    engine = await openTestEngine(dirs);
  });
  afterAll(async () => {
    await engine.close();
    rmSync(dirs.top, { recursive: true, force: true });
  });
  const subject = (): ProviderUnderTest => ({
    provider: localSandboxProvider(engine, { limits: { mem_mb: 512, disk_mb: 256 } }),
    openSandboxes: () => engine.status().sandboxes,
  });

  describeSandboxProvider("the local provider", subject);

  for (const { breaks, mutate } of PROVIDER_MUTANTS) {
    test(`a provider that breaks ${breaks} fails that check and no other`, async () => {
      const broken = mutate(subject());
      const failed: string[] = [];
      for (const check of PROVIDER_CHECKS) {
        await runCheck(check, broken).catch(() => failed.push(check.id));
      }
      expect(failed).toEqual([breaks]);
    });
  }
});
