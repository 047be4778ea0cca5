/** Opening the local engine in the mode that was asked for, or saying why that is not possible. */

import { CprgError } from "../core/errors.ts";
import { DEFAULT_LIMITS, type Limits } from "../core/limits.ts";
import type { EngineOptions, LocalEngine } from "./engine-contract.ts";
import { openNamespaceEngine } from "./namespace-engine.ts";
import { openOffEngine } from "./off-engine.ts";
import { modeFor } from "./rootless.ts";

export type { EngineMode, EngineOptions, EngineStatus, LocalEngine } from "./engine-contract.ts";

/** Limits of the sandbox that shows whether any can be made. */
const PROBE_LIMITS: Limits = { ...DEFAULT_LIMITS, disk_mb: 1 };

/**
 * Opens the local engine.
 *
 * @throws CprgError `failed_precondition` naming what this host or user lacks, with the fix
 */
export async function openLocalEngine(options: EngineOptions): Promise<LocalEngine> {
  if (options.mode === "off") return openOffEngine(options);
  if (process.platform !== "linux") {
    throw new CprgError("failed_precondition", `Cannot run sandboxes on ${process.platform}`, {
      reason: "UNSUPPORTED_PLATFORM",
      hint: "Use Linux; or run programs with no sandbox at all, as this user: --sandbox off",
    });
  }
  const mode = modeFor(options.mode, process.geteuid?.() ?? -1);
  if (mode === "off") return openOffEngine(options);
  const engine = await openNamespaceEngine(mode, options);
  if (mode === "rootless" || options.isProven === true) await probe(engine);
  return engine;
}

/** A host can let namespaces be made and then forbid what they are for: only one whole tells. */
async function probe(engine: LocalEngine): Promise<void> {
  try {
    const lease = await engine.open(await engine.reserve(PROBE_LIMITS));
    await lease.release();
  } catch (error) {
    await engine.close();
    throw error;
  }
}
