/** What an engine is to everyone else: how it is opened, and what it offers once it is. */

import type { Layers } from "../core/event.ts";
import type { Log } from "../core/log.ts";
import type { ExecProvider } from "../provider/contract.ts";
import type { Capacity } from "./admission.ts";
import type { IdRange } from "./ids.ts";
import type { LanguageName, LocalLanguages } from "./languages.ts";
import type { Bind } from "./root-plan.ts";
import type { SeccompPolicy } from "./seccomp/policy.ts";

/** How strong the walls are: `ns` namespaces as root, `rootless` as a user, `off` none at all. */
export type EngineMode = "ns" | "rootless" | "off";

/** How to open an engine. */
export interface EngineOptions {
  /** Locks, ids and mount points: what lives as long as the engine. */
  readonly runDir: string;
  /** Where native code is kept when it cannot be kept in memory. */
  readonly dataDir: string;
  readonly mode: "auto" | EngineMode;
  /** Layers that may be missing, by name: `cgroup`, without which root runs nothing, `identity`. */
  readonly allowMissing?: readonly string[];
  readonly binds?: readonly Bind[];
  readonly interpreters?: Partial<Readonly<Record<LanguageName, string>>>;
  readonly cgroupParent?: string;
  readonly capacity?: Partial<Capacity>;
  /** Sandboxes that are kept built and waiting, each with two ids of the range; default 0. */
  readonly pool?: number;
  /**
   * Whether a sandbox is built and thrown away first, so that a host that can hold none is told at
   * the start and not with the first job. A user's engine always does.
   */
  readonly isProven?: boolean;
  /** Default: on, with nothing but the profiles. */
  readonly seccomp?: SeccompPolicy;
  readonly idRange?: IdRange;
  /** Where ids are taken: the same for every server of a host, so for tests alone. */
  readonly idDirectory?: string;
  readonly log?: Log;
}

/** What an engine says of itself. */
export interface EngineStatus {
  readonly mode: EngineMode;
  readonly instance: string;
  readonly sandboxes: number;
  /** Built, and waiting for whoever asks. */
  readonly pooled: number;
  readonly capacity: Capacity;
  readonly reserved: Capacity;
  readonly waiting: number;
}

/** An open engine. */
export interface LocalEngine extends ExecProvider {
  readonly mode: EngineMode;
  readonly layers: Layers;
  /** Layers that are not in force. */
  readonly missing: readonly string[];
  readonly instance: string;
  readonly languages: LocalLanguages;
  status(): EngineStatus;
  /** Releases every lease and removes everything; idempotent. */
  close(): Promise<void>;
}
