/** A provider whose sandboxes work on the host's own worktree. */

import type { SandboxProvider } from "./contract.ts";
import { defineProvider, type ProviderDefinition } from "./define.ts";

/**
 * Makes a mounted provider: `acquire` mounts `context.directory` at the lease's root.
 *
 * @returns a frozen plain object that can be spread, as in `{ ...provider, recover }`
 * @throws CprgError `invalid_argument` for a bad name
 */
export function createMountedSandboxProvider(definition: ProviderDefinition): SandboxProvider {
  return defineProvider(definition, "mounted");
}
