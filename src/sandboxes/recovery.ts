/** What a server does at start about sandboxes and execs that another run of it left. */

import type { Clock } from "../core/clock.ts";
import { neverRan } from "../record/failed-outcome.ts";
import type { ExecStore, SandboxStore } from "../store/contract.ts";

/** What was found and ended; all of it as `interrupted`. */
export interface RecoveredSandboxes {
  readonly sandboxes: number;
  readonly execs: number;
}

/** What a recovery works with. */
export interface SandboxRecoveryOptions {
  readonly sandboxes: SandboxStore;
  readonly execs: ExecStore;
  readonly clock: Clock;
  /** Instances whose sandboxes are left alone. */
  readonly livingInstances: readonly string[];
}

/** Ends what no living instance holds: a sandbox does not outlive its server. */
export async function recoverSandboxes(
  options: SandboxRecoveryOptions,
): Promise<RecoveredSandboxes> {
  const { sandboxes, execs, clock, livingInstances } = options;
  const message = "The server ended while the program was running";
  let ended = 0;
  for (const exec of await execs.orphans(livingInstances)) {
    const outcome = {
      ...neverRan("interrupted", { message }),
      durationMs: Math.max(0, clock.now() - exec.createdAt),
    };
    if ((await execs.finish(exec.id, outcome, clock.now())) !== null) ended += 1;
  }
  let closed = 0;
  for (const { id } of await sandboxes.orphans(livingInstances)) {
    if ((await sandboxes.end(id, "interrupted", clock.now())) !== null) closed += 1;
  }
  return { sandboxes: closed, execs: ended };
}
