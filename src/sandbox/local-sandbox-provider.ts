/** The local engine as a provider of the SDK: every sandbox of it has the limits of the factory. */

import { newId } from "../core/ids.ts";
import { type Limits, parseLimits } from "../core/limits.ts";
import type { ExecProvider, SandboxProvider } from "../provider/contract.ts";
import { createRemoteSandboxProvider } from "../provider/remote.ts";

/** How its sandboxes are. */
export interface LocalSandboxOptions {
  /** Missing ones take their default. */
  readonly limits?: Partial<Limits>;
  readonly variables?: Readonly<Record<string, string>>;
}

/**
 * Makes a provider whose sandboxes start empty. Nothing of them outlives the engine's process but
 * what the next engine on the same run directory reaps, so it declares no `recover`.
 *
 * @throws CprgError `invalid_argument` for bad limits
 */
export function localSandboxProvider(
  engine: ExecProvider,
  options: LocalSandboxOptions = {},
): SandboxProvider {
  const limits = parseLimits(options.limits);
  return createRemoteSandboxProvider({
    name: "local",
    ...(options.variables === undefined ? {} : { variables: options.variables }),
    async acquire(context) {
      await context.registerRecovery?.(newId());
      const signal = context.signal === undefined ? {} : { signal: context.signal };
      const reservation = await engine.reserve(limits, signal);
      const lease = await engine.open(reservation, signal);
      const variables = { ...options.variables, ...context.variables };
      return {
        root: lease.root,
        home: lease.home,
        capabilities: lease.capabilities,
        invoke: (command) =>
          lease.invoke({ ...command, variables: { ...variables, ...command.variables } }),
        upload: (source, destination, bounds) => lease.upload(source, destination, bounds),
        download: (source, destination, bounds) => lease.download(source, destination, bounds),
        release: () => lease.release(),
      };
    },
  });
}
