/** A claim as a lease that others hold open: what its worker said of it, checked, with its files. */

import type { Layers } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import { LIMIT_NAMES, type Limits } from "../core/limits.ts";
import type { EntryPart, EntrySink, PutOptions, TransferOptions } from "../provider/contract.ts";
import type { WorkerClaim, WorkerJobEvent } from "../provider/placement.ts";
import type { ClaimLink } from "./claim-link.ts";
import { runRemoteJob } from "./remote-job.ts";
import { WorkerLease } from "./worker-provider.ts";

/** Names of layers that are believed, and characters of a name or a word. */
const LAYERS_MAX = 32;
const WORD_CHARS_MAX = 64;

/** A lease on a worker. */
export class PlacedLease extends WorkerLease implements WorkerClaim {
  readonly #link: ClaimLink;
  readonly workerId: string;
  readonly limits: Limits | null;
  readonly enforcesLimits: boolean;
  readonly layers: Layers;
  readonly missing: readonly string[];
  /** The worker adds what its programs need. */
  readonly variables = {};

  constructor(link: ClaimLink, workerId: string) {
    super(link, {});
    this.#link = link;
    this.workerId = workerId;
    const { limits, layers, missing } = link.granted;
    this.limits = limitsOf(limits);
    this.enforcesLimits = this.limits !== null;
    this.layers = Object.fromEntries(
      Object.entries(layers)
        .slice(0, LAYERS_MAX)
        .map(([name, value]) => [word(name), layerOf(value)]),
    );
    this.missing = missing.slice(0, LAYERS_MAX).map(word);
  }

  get gone(): AbortSignal {
    return this.#link.over;
  }

  putEntries(entries: AsyncIterable<EntryPart>, destination: string, options?: PutOptions) {
    return this.files.putEntries(entries, destination, options);
  }

  takeEntries(source: string, sink: EntrySink, options?: TransferOptions): Promise<void> {
    return this.files.takeEntries(source, sink, options);
  }

  remove(path: string, options?: TransferOptions): Promise<void> {
    return this.files.remove(path, options);
  }

  runJob(
    spec: JobSpec,
    options: { readonly signal?: AbortSignal } = {},
  ): AsyncIterable<WorkerJobEvent> {
    return runRemoteJob(this.#link, spec, options);
  }
}

/** Null unless every limit is named with a value that one can have. */
function limitsOf(given: Readonly<Record<string, number>>): Limits | null {
  const values = LIMIT_NAMES.map((name) => [name, given[name]] as const);
  const isWhole = values.every(([, value]) => Number.isFinite(value) && Number(value) > 0);
  return isWhole ? (Object.freeze(Object.fromEntries(values)) as unknown as Limits) : null;
}

function layerOf(value: string): boolean | string {
  return value === "true" || value === "false" ? value === "true" : word(value);
}

function word(text: string): string {
  return text.slice(0, WORD_CHARS_MAX).toWellFormed();
}
