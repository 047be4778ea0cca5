// What every check of the provider contract is made of.

import { createHash } from "node:crypto";
import type {
  CommandResult,
  SandboxContext,
  SandboxLease,
  SandboxProvider,
} from "../../src/provider/contract.ts";

/** A provider and what the suite must know of it. */
export interface ProviderUnderTest {
  readonly provider: SandboxProvider;
  /** Sandboxes that exist now: proof that nothing is allocated, and that everything is freed. */
  openSandboxes(): number | Promise<number>;
}

/** One duty. */
export interface ProviderCheck {
  readonly id: string;
  readonly duty: string;
  run(subject: ProviderUnderTest, scratch: string): Promise<void>;
}

/** Every byte value, and what is no UTF-8. */
export const BINARY = Buffer.from(Array.from({ length: 70_000 }, (_, index) => (index * 7) % 256));

/** Hexadecimal. */
export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** A context without a repository. */
export function context(extra: Partial<SandboxContext> = {}): SandboxContext {
  return {
    repository: "/nonexistent",
    directory: "/nonexistent",
    gitDirectories: [],
    variables: {},
    ...extra,
  };
}

/** Opens a lease for some work. */
export async function withLease(
  { provider }: ProviderUnderTest,
  work: (lease: SandboxLease) => Promise<void>,
  extra: Partial<SandboxContext> = {},
): Promise<void> {
  const lease = await provider.acquire(context(extra));
  try {
    await work(lease);
  } finally {
    await lease.release();
  }
}

/** Runs a shell script inside. */
export function sh(lease: SandboxLease, script: string): Promise<CommandResult> {
  return lease.invoke({ executable: "sh", arguments: ["-c", script] });
}

/** What a promise rejects with. */
export const rejection = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "it did not reject",
    (error: unknown) => error,
  );
