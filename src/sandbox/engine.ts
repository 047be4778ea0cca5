/** Opening the local engine in the mode that was asked for, or saying why that is not possible. */

import { CprgError } from "../core/errors.ts";
import type { EngineOptions, LocalEngine } from "./engine-contract.ts";
import { openNamespaceEngine } from "./namespace-engine.ts";
import { openOffEngine } from "./off-engine.ts";

export type { EngineMode, EngineOptions, EngineStatus, LocalEngine } from "./engine-contract.ts";

/**
 * Opens the local engine.
 *
 * @throws CprgError `failed_precondition` naming what this host or user lacks, with the fix
 */
export async function openLocalEngine(options: EngineOptions): Promise<LocalEngine> {
  if (options.mode === "off") return openOffEngine(options);
  if (process.platform !== "linux") {
    throw refusal(`Cannot run sandboxes on ${process.platform}`, "UNSUPPORTED_PLATFORM");
  }
  if (options.mode === "rootless") {
    throw refusal("Cannot run sandboxes without root yet", "NO_ROOTLESS");
  }
  if (process.geteuid?.() !== 0) {
    throw refusal("Cannot run sandboxes: this process is not root", "NOT_ROOT");
  }
  return openNamespaceEngine(options);
}

function refusal(message: string, reason: string): CprgError {
  return new CprgError("failed_precondition", message, {
    reason,
    hint: "Start it as root on Linux (sudo); or run programs with no sandbox at all, as this user: --sandbox off",
  });
}
