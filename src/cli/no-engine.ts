/** What a server needs of its engine, and what `cprg control-plane` has in place of one: nothing. */

import { CprgError } from "../core/errors.ts";
import type { Layers } from "../core/event.ts";
import { newId } from "../core/ids.ts";
import type { JobLanguages } from "../jobs/languages.ts";
import type { ExecProvider } from "../provider/contract.ts";
import type { EngineStatus } from "../sandbox/engine-contract.ts";

/** What a server needs of its engine. */
export interface ServerEngine extends ExecProvider {
  /** `none`: nothing runs on this host. */
  readonly mode: EngineStatus["mode"] | "none";
  readonly layers: Layers;
  readonly missing: readonly string[];
  readonly instance: string;
  readonly languages: JobLanguages;
  status(): Pick<EngineStatus, "sandboxes" | "pooled"> & {
    readonly capacity: Pick<EngineStatus["capacity"], "memMb">;
  };
  close(): Promise<void>;
}

/** An engine that opens nothing. */
export function noEngine(): ServerEngine {
  const refuse = async (): Promise<never> => {
    throw new CprgError("unimplemented", "Cannot run: nothing runs on this host");
  };
  return {
    name: "none",
    mode: "none",
    layers: {},
    missing: [],
    instance: newId(),
    languages: { resolve: refuse, list: () => [] },
    status: () => ({ sandboxes: 0, pooled: 0, capacity: { memMb: 0 } }),
    reserve: refuse,
    open: refuse,
    close: async () => undefined,
  };
}
