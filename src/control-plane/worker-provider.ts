/** Workers as a provider of sandboxes: each lease is a claim on one of them. */

import { newId } from "../core/ids.ts";
import type {
  Command,
  CommandResult,
  Exec,
  ExecSpec,
  LeaseCapability,
  SandboxLease,
  SandboxProvider,
  TransferOptions,
} from "../provider/contract.ts";
import { invokeThrough } from "../provider/invoke.ts";
import { createRemoteSandboxProvider } from "../provider/remote.ts";
import type { ClaimLink } from "./claim-link.ts";
import { startRemoteExec } from "./remote-exec.ts";
import { RemoteFiles } from "./remote-files.ts";
import type { WorkerRegistry } from "./worker-registry.ts";

/** How claims are made. */
export interface WorkerProviderOptions {
  /** Variables of every command in every lease. */
  readonly variables?: Readonly<Record<string, string>>;
  /** A claim that no heartbeat renews for so long ends at its worker; 0: never. Default: the registry's. */
  readonly claimTtlSeconds?: number;
  /** For whom it works: its own workers and those that are shared. Default: shared ones alone. */
  readonly tenant?: string;
  /** What a worker must have. */
  readonly labels?: Readonly<Record<string, string>>;
}

/**
 * Makes a provider of the workers of a registry. Acquiring waits until one is free.
 *
 * Nothing of a lease outlives its worker's claim, which ends without us: no `recover`.
 */
export function workerSandboxProvider(
  registry: WorkerRegistry,
  options: WorkerProviderOptions = {},
): SandboxProvider {
  return createRemoteSandboxProvider({
    name: "worker",
    ...(options.variables === undefined ? {} : { variables: options.variables }),
    async acquire(context) {
      const taskId = newId();
      await context.registerRecovery?.(taskId);
      const claimed = await registry.claim(
        {
          taskId,
          epoch: 1,
          claimTtlSeconds: options.claimTtlSeconds ?? registry.liveness.claimTtlSeconds,
        },
        {
          ...(context.signal === undefined ? {} : { signal: context.signal }),
          ...(options.tenant === undefined ? {} : { tenant: options.tenant }),
          ...(options.labels === undefined ? {} : { labels: options.labels }),
        },
      );
      return new WorkerLease(claimed, { ...options.variables, ...context.variables });
    },
  });
}

/** A claim as a lease. */
export class WorkerLease implements SandboxLease {
  readonly #claimed: ClaimLink;
  readonly #variables: Readonly<Record<string, string>>;
  readonly root: string;
  readonly home: string;
  readonly capabilities: readonly LeaseCapability[] = [];
  readonly files: RemoteFiles;

  constructor(claimed: ClaimLink, variables: Readonly<Record<string, string>>) {
    this.#claimed = claimed;
    this.#variables = variables;
    this.root = claimed.granted.root;
    this.home = claimed.granted.home;
    this.files = new RemoteFiles(claimed);
  }

  exec(spec: ExecSpec): Promise<Exec> {
    return startRemoteExec(this.#claimed, spec);
  }

  invoke(command: Command): Promise<CommandResult> {
    return invokeThrough(this, command, this.#variables);
  }

  upload(source: string, destination: string, options?: TransferOptions): Promise<void> {
    return this.files.upload(source, destination, options);
  }

  download(source: string, destination: string, options?: TransferOptions): Promise<void> {
    return this.files.download(source, destination, options);
  }

  release(): Promise<void> {
    return this.#claimed.release();
  }
}
