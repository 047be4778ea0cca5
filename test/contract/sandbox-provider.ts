// The contract of a sandbox provider as a list of checks, one for each duty. A provider passes when
// all of them do; a mutant of each duty must fail exactly its own.

import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROVIDER_NAME } from "../../src/provider/contract.ts";
import {
  context,
  type ProviderCheck,
  type ProviderUnderTest,
  rejection,
  withLease,
} from "./sandbox-provider-check.ts";
import { INVOKE_CHECKS } from "./sandbox-provider-invoke.ts";
import { TRANSFER_CHECKS } from "./sandbox-provider-transfers.ts";

const ACQUIRING: readonly ProviderCheck[] = [
  {
    id: "provider.shape",
    duty: "a checked name, a placement, a frozen plain object that can be spread",
    run: async ({ provider }) => {
      expect(provider.name).toMatch(PROVIDER_NAME);
      expect(["mounted", "remote"]).toContain(provider.placement);
      expect(Object.isFrozen(provider)).toBe(true);
      const spread = { ...provider, recover: () => Promise.resolve() };
      expect([spread.name, spread.acquire]).toEqual([provider.name, provider.acquire]);
    },
  },
  {
    id: "acquire.recovery",
    duty: "registerRecovery is awaited exactly once, before anything is allocated",
    run: async (subject) => {
      const before = await subject.openSandboxes();
      const seen: { id: string; open: number }[] = [];
      let isSettled = false;
      await withLease(
        subject,
        async () => {
          expect(isSettled).toBe(true);
        },
        {
          registerRecovery: async (id) => {
            seen.push({ id, open: await subject.openSandboxes() });
            await new Promise((resolve) => setImmediate(resolve));
            seen.push({ id, open: await subject.openSandboxes() });
            isSettled = true;
          },
        },
      );
      expect(seen.map(({ open }) => open)).toEqual([before, before]);
      expect(seen[0]?.id).not.toBe("");
      const refused = await rejection(
        subject.provider.acquire(
          context({ registerRecovery: () => Promise.reject(new Error("not registered")) }),
        ),
      );
      expect(String(refused)).toContain("not registered");
      expect(await subject.openSandboxes()).toBe(before);
    },
  },
  {
    id: "acquire.signal",
    duty: "an aborted acquire rejects and leaves nothing",
    run: async (subject) => {
      const before = await subject.openSandboxes();
      const refused = await rejection(
        subject.provider.acquire(context({ signal: AbortSignal.abort() })),
      );
      expect(refused).toBeInstanceOf(Error);
      expect(await subject.openSandboxes()).toBe(before);
    },
  },
  {
    id: "acquire.variables",
    duty: "the context's variables are every command's, and a command's own win",
    run: (subject) =>
      withLease(
        subject,
        async (lease) => {
          const result = await lease.invoke({
            executable: "sh",
            arguments: ["-c", 'printf "%s %s" "$ONE" "$TWO"'],
            variables: { TWO: "own" },
          });
          expect(result.stdout).toBe("1 own");
        },
        { variables: { ONE: "1", TWO: "2" } },
      ),
  },
];

const RELEASING: readonly ProviderCheck[] = [
  {
    id: "release.frees",
    duty: "release frees everything, what still runs included",
    run: async (subject) => {
      const before = await subject.openSandboxes();
      const lease = await subject.provider.acquire(context());
      expect(await subject.openSandboxes()).toBe(before + 1);
      const running = rejection(lease.invoke({ executable: "sleep", arguments: ["1000"] }));
      await lease.release();
      await running;
      expect(await subject.openSandboxes()).toBe(before);
    },
  },
  {
    id: "release.twice",
    duty: "a second release resolves",
    run: async ({ provider }) => {
      const lease = await provider.acquire(context());
      await lease.release();
      await lease.release();
    },
  },
];

/** All duties. */
export const PROVIDER_CHECKS: readonly ProviderCheck[] = [
  ...ACQUIRING,
  ...INVOKE_CHECKS,
  ...TRANSFER_CHECKS,
  ...RELEASING,
];

/** Runs one check in a directory of its own. */
export async function runCheck(check: ProviderCheck, subject: ProviderUnderTest): Promise<void> {
  const scratch = mkdtempSync(join(tmpdir(), "cprg-contract-"));
  try {
    await check.run(subject, scratch);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Declares a test for each duty. */
export function describeSandboxProvider(name: string, subject: () => ProviderUnderTest): void {
  describe(`${name} keeps the provider contract`, () => {
    for (const check of PROVIDER_CHECKS) {
      test(`${check.id}: ${check.duty}`, () => runCheck(check, subject()));
    }
  });
}
