/** The plans of one engine: what depends on the host is read once, what on limits is remembered. */

import type { Limits } from "../core/limits.ts";
import { CLONE } from "./layout.ts";
import {
  HOSTNAME,
  hostRootSteps,
  ROOT_OPTIONS,
  type RootOptions,
  SCRATCH,
  WORKSPACE,
  writableSteps,
} from "./root-plan.ts";
import { encodePlan, type PlanStep } from "./spawn-plan.ts";

/** Encoded plans that are kept: most jobs have the default limits. */
const KEPT_MAX = 32;

const NAMESPACES = CLONE.newNs | CLONE.newUts | CLONE.newIpc | CLONE.newNet | CLONE.newCgroup;

/** What every plan of an engine shares. */
export interface PlanOptions extends RootOptions {
  /** `enum cprg_map`. */
  readonly idMap: number;
}

/** Makes plans. */
export class PlanSource {
  readonly #options: PlanOptions;
  readonly #hostSteps: readonly PlanStep[];
  readonly #kept = new Map<string, Uint8Array>();

  constructor(options: PlanOptions) {
    this.#options = options;
    this.#hostSteps = hostRootSteps(options);
  }

  /** The message for a sandbox with these limits. */
  encoded(limits: Limits, programId: number): Uint8Array {
    const key = `${limits.disk_mb} ${limits.inodes} ${programId}`;
    const known = this.#kept.get(key);
    if (known !== undefined) return known;
    const message = encodePlan({
      unshare: NAMESPACES,
      idProgram: programId,
      idMap: this.#options.idMap,
      steps: this.#steps(limits),
      scratch: SCRATCH,
      rootOptions: ROOT_OPTIONS,
      hostname: HOSTNAME,
      workspace: WORKSPACE,
    });
    if (this.#kept.size >= KEPT_MAX) this.#kept.clear();
    this.#kept.set(key, message);
    return message;
  }

  /** What a step is about: the host path that is bound, or the place in the new root. */
  subject(limits: Limits, index: number): string | undefined {
    const step = this.#steps(limits)[index];
    if (step === undefined) return undefined;
    const isHostPath = typeof step.source === "string" && step.source.startsWith("/");
    return isHostPath ? String(step.source) : step.target;
  }

  #steps(limits: Limits): readonly PlanStep[] {
    return [...writableSteps(limits), ...this.#hostSteps];
  }
}
