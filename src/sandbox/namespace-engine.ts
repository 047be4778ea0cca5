/**
 * The engine of namespaces and control groups, as root or as a user. Owns the instance, its groups
 * and ids, admission, and every lease until it is released.
 */

import { CprgError } from "../core/errors.ts";
import type { Layers } from "../core/event.ts";
import { DEFAULT_LIMITS, type Limits } from "../core/limits.ts";
import { type Log, silentLog } from "../core/log.ts";
import type { ExecLease, OpenOptions, Reservation, ReserveOptions } from "../provider/contract.ts";
import { Admission, type Capacity } from "./admission.ts";
import { hostCapacity } from "./capacity.ts";
import type { GroupTree } from "./cgroup.ts";
import type { CgroupHost } from "./cgroup-hierarchy.ts";
import { findCgroups } from "./cgroup-host.ts";
import { openNoTree } from "./cgroup-none.ts";
import { openV1Tree } from "./cgroup-v1.ts";
import { openV2Tree } from "./cgroup-v2.ts";
import type { EngineOptions, EngineStatus, LocalEngine } from "./engine-contract.ts";
import { DEFAULT_ID_RANGE, HOST_ID_DIRECTORY, IdPool, makeIdDirectory, sweepIds } from "./ids.ts";
import { closedAncestor, type Instance, openInstance } from "./instance.ts";
import { allowsUserNamespaces } from "./kernel.ts";
import { type LanguageName, LocalLanguages } from "./languages.ts";
import { MAP } from "./layout.ts";
import { LocalLease } from "./lease.ts";
import { Native } from "./native.ts";
import { PlanSource } from "./plan-source.ts";
import { SandboxPool } from "./pool.ts";
import { isAlive } from "./process-tree.ts";
import { reapDead } from "./reap.ts";
import { RUNTIME_PATH, WORKSPACE } from "./root-plan.ts";
import { checkDelegated, isReachable, ownIds } from "./rootless.ts";
import { Rush } from "./rush.ts";
import { type Sandbox, type SandboxHost, startSandbox } from "./sandbox.ts";
import { openFilters, type SeccompFilters } from "./seccomp/filters.ts";
import { explainHere } from "./userns-problem.ts";

/** Limits of the sandbox in which interpreters are looked for. */
const LOOK_LIMITS: Limits = { ...DEFAULT_LIMITS, disk_mb: 16 };

/** The layer `identity` where sandboxes are not kept apart by their ids. */
const SHARED_IDENTITY = "shared";

/** The engine of namespaces. */
export class NamespaceEngine implements LocalEngine {
  readonly name = "local";
  readonly mode: "ns" | "rootless";
  readonly layers: Layers;
  readonly missing: readonly string[];
  readonly languages: LocalLanguages;
  readonly #host: SandboxHost;
  readonly #instance: Instance;
  readonly #admission: Admission;
  readonly #log: Log;
  readonly #filters: SeccompFilters;
  readonly #pool: SandboxPool;
  readonly #rush = new Rush();
  readonly #leases = new Set<LocalLease>();
  readonly #opening = new Set<Promise<unknown>>();
  #count = 0;
  #closing: Promise<void> | null = null;

  constructor(parts: EngineParts) {
    this.#host = parts.host;
    this.#instance = parts.instance;
    this.#admission = new Admission(parts.capacity);
    this.#log = parts.log;
    this.#filters = parts.filters;
    this.#pool = new SandboxPool({
      sandboxesMax: parts.pool,
      log: parts.log,
      build: (limits) => this.#build(limits),
      calm: () => this.#rush.calm(),
      isAlive: ({ pid }) => isAlive(pid),
    });
    this.mode = parts.mode;
    this.layers = parts.layers;
    this.missing = missingOf(parts.layers);
    this.languages = new LocalLanguages({
      interpreters: parts.interpreters,
      runtime: parts.hasRuntime ? RUNTIME_PATH : null,
      codeDirectory: WORKSPACE,
      openSandbox: async () => this.#lease(await this.#cold(LOOK_LIMITS), LOOK_LIMITS),
    });
    this.#pool.fill(DEFAULT_LIMITS);
  }

  get instance(): string {
    return this.#instance.id;
  }

  reserve(limits: Limits, options: ReserveOptions = {}): Promise<Reservation> {
    return this.#admission.reserve(limits, options);
  }

  async open(
    reservation: Reservation,
    { signal, isNew = false }: OpenOptions = {},
  ): Promise<ExecLease> {
    const free = this.#admission.occupy(reservation);
    const unhurried = this.#rush.begin();
    const end = (): void => {
      unhurried();
      free();
    };
    const { limits } = reservation;
    try {
      this.#throwIfClosing();
      if (signal?.aborted) throw cancelled();
      const waiting = isNew ? null : this.#pool.take(limits);
      const sandbox = waiting ?? (await this.#cold(limits, signal));
      return this.#lease(sandbox, limits, { wasWaiting: waiting !== null, onReleased: end });
    } catch (error) {
      end();
      throw error;
    }
  }

  status(): EngineStatus {
    return {
      mode: this.mode,
      instance: this.instance,
      sandboxes: this.#leases.size,
      pooled: this.#pool.size,
      ...this.#admission.status,
    };
  }

  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    await this.#pool.close();
    await Promise.allSettled(this.#opening);
    const released = await Promise.allSettled([...this.#leases].map((lease) => lease.release()));
    await this.#host.groups.close();
    this.#instance.close();
    for (const result of released) if (result.status === "rejected") throw result.reason;
  }

  #throwIfClosing(): void {
    if (this.#closing === null) return;
    throw new CprgError("unavailable", "Cannot open a sandbox: the engine is closing");
  }

  /** One that is needed now: those that wait for nobody give way where ids are scarce. */
  async #cold(limits: Limits, signal?: AbortSignal): Promise<Sandbox> {
    try {
      return await this.#build(limits, signal);
    } catch (error) {
      const isScarce = CprgError.is(error) && error.reason === "NO_IDS";
      if (!isScarce || !(await this.#pool.giveWay())) throw error;
      return await this.#build(limits, signal);
    }
  }

  async #build(limits: Limits, signal?: AbortSignal): Promise<Sandbox> {
    this.#throwIfClosing();
    this.#count += 1;
    const starting = startSandbox(this.#host, {
      name: `s${this.#count}`,
      limits,
      ...(signal === undefined ? {} : { signal }),
    });
    this.#opening.add(starting);
    try {
      return await starting;
    } catch (error) {
      throw explainHere(error, this.mode);
    } finally {
      this.#opening.delete(starting);
    }
  }

  #lease(
    sandbox: Sandbox,
    limits: Limits,
    { wasWaiting = false, onReleased }: { wasWaiting?: boolean; onReleased?: () => void } = {},
  ): LocalLease {
    const lease: LocalLease = new LocalLease({
      native: this.#host.native,
      sandbox,
      limits,
      layers: this.layers,
      missing: this.missing,
      wasWaiting,
      log: this.#log,
      filters: this.#filters,
      onReleased: () => {
        this.#leases.delete(lease);
        onReleased?.();
      },
    });
    this.#leases.add(lease);
    return lease;
  }
}

function cancelled(): CprgError {
  return new CprgError("canceled", "Cannot open a sandbox: cancelled");
}

/** What an engine is made of. */
interface EngineParts {
  readonly mode: "ns" | "rootless";
  readonly host: SandboxHost;
  readonly instance: Instance;
  readonly capacity: Capacity;
  readonly layers: Layers;
  readonly interpreters: Partial<Readonly<Record<LanguageName, string>>>;
  readonly hasRuntime: boolean;
  readonly filters: SeccompFilters;
  /** Sandboxes that are kept built and waiting. */
  readonly pool: number;
  readonly log: Log;
}

/**
 * Opens the engine with namespaces.
 *
 * @param mode `ns` needs root, `rootless` nothing
 * @throws CprgError naming what the host lacks, with the fix
 */
export async function openNamespaceEngine(
  mode: "ns" | "rootless",
  options: EngineOptions,
): Promise<LocalEngine> {
  const log = options.log ?? silentLog;
  const native = await sharedNative(options.dataDir);
  native.harden();
  const cgroups = findAllowed(mode, options);
  const capacity = { ...hostCapacity(cgroups), ...options.capacity };
  const idMap = idMapFor(mode);
  const filters = openFilters(options.seccomp);
  const runtime = isOwnReachable(mode) ? process.execPath : null;
  const { runDir, idDirectory = HOST_ID_DIRECTORY } = options;
  if (mode === "ns") makeIdDirectory(idDirectory);
  const instance = await openInstance(native, runDir, async () => {
    await reapDead(native, runDir, log);
    if (mode === "ns") sweepIds(native, idDirectory);
  });
  try {
    // What only checks comes first: nothing is made for options that are refused.
    const range = options.idRange ?? DEFAULT_ID_RANGE;
    const ids =
      mode === "ns" ? new IdPool(native, { directory: idDirectory, range }) : ownIds(ownUid());
    const plans = new PlanSource({ idMap, binds: options.binds ?? [], runtime });
    const groups = openTree(native, cgroups, {
      instance,
      capacity,
      isIdShared: mode === "rootless",
    });
    const host: SandboxHost = { native, ids, groups, idMap, plans };
    return new NamespaceEngine({
      mode,
      host,
      instance,
      capacity,
      layers: layersOf(cgroups, { idMap, filters }),
      interpreters: options.interpreters ?? {},
      hasRuntime: runtime !== null,
      filters,
      pool: options.pool ?? 0,
      log,
    });
  } catch (error) {
    instance.close();
    throw error;
  }
}

/** One for the process: the library is never unloaded. */
let loading: Promise<Native> | null = null;

function sharedNative(dataDir: string): Promise<Native> {
  loading ??= Native.load({ dataDir }).catch((error: unknown) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** A user has none without set-up, which needs no leave; one that is named must be there. */
function findAllowed(mode: "ns" | "rootless", options: EngineOptions): CgroupHost | null {
  const { cgroupParent, allowMissing = [], log } = options;
  const mayLack = mode === "rootless" && cgroupParent === undefined;
  try {
    const found = findCgroups(cgroupParent === undefined ? {} : { cgroupParent });
    if (mode === "rootless") checkDelegated(found);
    return found;
  } catch (error) {
    if (!mayLack && !allowMissing.includes("cgroup")) throw error;
    log?.warn("no control groups: sandboxes have no common limits", { error });
    return null;
  }
}

function openTree(
  native: Native,
  cgroups: CgroupHost | null,
  {
    instance,
    capacity,
    isIdShared,
  }: {
    readonly instance: Instance;
    readonly capacity: Capacity;
    readonly isIdShared: boolean;
  },
): GroupTree {
  if (cgroups === null) return openNoTree(native, { isIdShared });
  const options = {
    instance: instance.id,
    capacity,
    onPlaces: (directories: readonly string[]) => instance.recordGroups(directories),
  };
  return cgroups.version === "v2"
    ? openV2Tree(native, cgroups, options)
    : openV1Tree(native, cgroups, options);
}

/** The layer `identity` by `enum cprg_map`: two ids of its own, none, or the server's for all. */
const IDENTITIES: Readonly<Record<number, boolean | string>> = {
  [MAP.parent]: true,
  [MAP.none]: false,
  [MAP.self]: SHARED_IDENTITY,
};

function idMapFor(mode: "ns" | "rootless"): number {
  if (mode === "rootless") return MAP.self;
  return allowsUserNamespaces() ? MAP.parent : MAP.none;
}

function ownUid(): number {
  return process.geteuid?.() ?? 0;
}

/** Whether sandboxes can be given the executable: they see what their ids on the host may see. */
function isOwnReachable(mode: "ns" | "rootless"): boolean {
  const path = process.execPath;
  return mode === "rootless" ? isReachable(path) : closedAncestor(path) === null;
}

/** Layers that do not hold, or not as they are meant. */
function missingOf(layers: Layers): string[] {
  const isWeak = (state: boolean | string | undefined) =>
    state === false || state === SHARED_IDENTITY;
  return Object.keys(layers).filter((name) => isWeak(layers[name]));
}

function layersOf(
  cgroups: CgroupHost | null,
  { idMap, filters }: { readonly idMap: number; readonly filters: SeccompFilters },
): Layers {
  return {
    root: true,
    identity: IDENTITIES[idMap] ?? false,
    namespaces: true,
    cgroup: cgroups === null ? false : cgroups.version,
    rlimits: true,
    seccomp: filters.mode,
    descriptors: true,
    environment: true,
  };
}
