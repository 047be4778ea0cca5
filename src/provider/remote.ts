/** A provider whose sandboxes start empty: the repository is transferred. */

import type { SandboxProvider } from "./contract.ts";
import { defineProvider, type ProviderDefinition } from "./define.ts";

/**
 * Makes a remote provider: `acquire` starts an empty environment.
 *
 * @returns a frozen plain object that can be spread, as in `{ ...provider, recover }`
 * @throws CprgError `invalid_argument` for a bad name
 */
export function createRemoteSandboxProvider(definition: ProviderDefinition): SandboxProvider {
  return defineProvider(definition, "remote");
}
