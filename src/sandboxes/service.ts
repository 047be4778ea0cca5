/**
 * Everything that can be asked of sandboxes, on behalf of one tenant: open, look, end, run, move
 * files. A sandbox of another tenant does not exist here. Knows no HTTP.
 */

import type { SealKey } from "../core/chain.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import { isId, newId, shownId } from "../core/ids.ts";
import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type { Placement } from "../core/placement.ts";
import type { SandboxEnd, SandboxRecord } from "../core/sandbox.ts";
import type { SecretSet } from "../core/secrets.ts";
import type { ExecProvider, HeldLease, Reservation } from "../provider/contract.ts";
import type { WorkerClaim, WorkerPool } from "../provider/placement.ts";
import type { Feed } from "../record/feed.ts";
import { storeEnd } from "../record/finisher.ts";
import { checkStoredBytes } from "../record/stored-bytes.ts";
import { DESCRIPTORS_PER_JOB, freeDescriptors } from "../sandbox/free-descriptors.ts";
import type { SandboxPage, SandboxQuery, Store } from "../store/contract.ts";
import { ADMISSION_WAIT_MS, TENANT_SANDBOXES_DEFAULT } from "./bounds.ts";
import { ExecService } from "./exec-service.ts";
import { SandboxFiles } from "./files.ts";
import { OpenSandbox, sandboxEnded } from "./open-sandbox.ts";
import { claimWorker } from "./placed.ts";
import { type RecoveredSandboxes, recoverSandboxes } from "./recovery.ts";
import type { SandboxSpec } from "./spec.ts";

const RETRY_SECONDS = 5;

/** What a service works with. */
export interface SandboxServiceOptions {
  readonly store: Store;
  readonly feed: Feed;
  readonly provider: ExecProvider;
  /** Workers for those that are placed on one; without it none can be. */
  readonly pool?: WorkerPool;
  /** What is asked for where nothing is; without it they are opened on this host. */
  readonly placement?: Placement;
  /** Signs exports. */
  readonly signingKey: SealKey;
  /** Id of this instance of the server. */
  readonly instance: string;
  readonly log: Log;
  /** Where values of variables are held while something may use them, so that no log shows them. */
  readonly secrets?: SecretSet;
  readonly clock?: Clock;
  /** Sandboxes that one tenant may have open. */
  readonly tenantSandboxes?: number;
  /** Limits of memory that those which one tenant has open may have together, in MiB. */
  readonly tenantMemMb?: number;
  /** Bytes that may be kept for one tenant. */
  readonly tenantBytesMax?: number;
  /** How long a new one may wait for its place; tests make it short. */
  readonly admissionWaitMs?: number;
  /** Descriptors that can still be opened, for tests. */
  freeDescriptors?(): number;
}

/** One that is being opened, as far as others have to know. */
type Opening = Pick<SandboxRecord, "tenant" | "limits" | "placement">;

interface Wanted {
  readonly tenant: string;
  readonly spec: SandboxSpec;
  readonly signal: AbortSignal | undefined;
}

/** Sandboxes as tenants use them. */
export class SandboxService {
  readonly #options: SandboxServiceOptions;
  readonly #clock: Clock;
  readonly #open = new Map<string, OpenSandbox>();
  /** Tenants of those that are being opened. */
  readonly #opening: Opening[] = [];
  readonly #openings = new Set<Promise<unknown>>();
  readonly #stopping = new AbortController();
  readonly execs: ExecService;
  readonly files: SandboxFiles;

  constructor(options: SandboxServiceOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { store, feed, signingKey, instance, log } = options;
    this.files = new SandboxFiles({ sandbox: (tenant, id) => this.opened(tenant, id) });
    this.execs = new ExecService({
      store,
      feed,
      signingKey,
      instance,
      log,
      secrets: options.secrets,
      clock: this.#clock,
      stopping: this.#stopping.signal,
      sandbox: (tenant, id) => this.opened(tenant, id),
      live: (exec) => this.#open.get(exec.sandboxId)?.execs.get(exec.id) ?? null,
      tenantBytesMax: options.tenantBytesMax,
      checkDescriptors: () => this.#checkDescriptors(),
      onGone: (id) => void this.#open.get(id)?.end({ reason: "runner_error", graceMs: 0 }),
    });
  }

  /** Ends what dead instances left. Call it once, before anything else. */
  async start(): Promise<RecoveredSandboxes> {
    const { store, instance } = this.#options;
    return await recoverSandboxes({
      sandboxes: store.sandboxes,
      execs: store.execs,
      clock: this.#clock,
      livingInstances: [instance],
    });
  }

  /**
   * Opens no more, and ends the open ones: what runs in them has a grace. Resolves when their ends
   * are stored. Calling again can only shorten the grace.
   */
  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    const end = async (): Promise<void> => {
      const request = { reason: "shutdown", graceMs } as const;
      await Promise.all([...this.#open.values()].map((sandbox) => sandbox.end(request)));
    };
    await end();
    while (this.#openings.size > 0) await Promise.allSettled(this.#openings);
    await end();
    this.execs.wakeAll();
  }

  /** How many are open, of one tenant or of all. */
  count(tenant?: string): number {
    return this.#held().filter((one) => tenant === undefined || one.tenant === tenant).length;
  }

  /** Those that are open, and those that are being opened. */
  #held(): readonly Opening[] {
    return [...[...this.#open.values()].map(({ record }) => record), ...this.#opening];
  }

  /**
   * Opens a sandbox. One that its client cannot be told of is ended again.
   *
   * @param options `signal`: gives it up; its reason is thrown
   * @throws CprgError `resource_exhausted` when the tenant has as many as it may, `unavailable` when
   *   there is no room for its limits now or the server stops, `failed_precondition` when there can
   *   never be
   */
  async create(
    tenant: string,
    spec: SandboxSpec,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<SandboxRecord> {
    this.#checkRoom(tenant);
    const { limits } = spec;
    const placement = spec.placement ?? this.#options.placement ?? null;
    if (placement === null) this.#checkMemory(tenant, limits);
    const opening = { tenant, limits, placement };
    this.#opening.push(opening);
    const work = this.#create(tenant, { ...spec, placement }, signal);
    this.#openings.add(work);
    try {
      return await work;
    } finally {
      this.#opening.splice(this.#opening.indexOf(opening), 1);
      this.#openings.delete(work);
    }
  }

  /** @throws CprgError `not_found` */
  async get(tenant: string, id: string): Promise<SandboxRecord> {
    const sandbox = isId(id) ? await this.#options.store.sandboxes.get(id) : null;
    if (sandbox === null || sandbox.tenant !== tenant) throw notFound(id);
    return sandbox;
  }

  /** A page of the tenant's sandboxes, newest first. */
  async list(query: SandboxQuery): Promise<SandboxPage> {
    return await this.#options.store.sandboxes.list(query);
  }

  /**
   * Ends a sandbox and all that runs in it.
   *
   * @returns it as it is afterwards
   * @throws CprgError `not_found`; `aborted` when it has ended already
   */
  async end(tenant: string, id: string): Promise<SandboxRecord> {
    const sandbox = await this.opened(tenant, id);
    await sandbox.end({ reason: "user", graceMs: 0 });
    return await this.get(tenant, id);
  }

  /**
   * The open sandbox of an id.
   *
   * @throws CprgError `not_found`; `aborted` when it has ended
   */
  async opened(tenant: string, id: string): Promise<OpenSandbox> {
    const open = this.#open.get(id);
    if (open !== undefined && open.record.tenant === tenant && open.ending === null) return open;
    const { reason } = await this.get(tenant, id);
    throw sandboxEnded(id, reason ?? open?.ending?.reason ?? null);
  }

  async #create(tenant: string, spec: SandboxSpec, signal: AbortSignal | undefined) {
    const { store, tenantBytesMax: bytesMax, secrets } = this.#options;
    using held = new DisposableStack();
    held.use(secrets?.hold(Object.values(spec.env), tenant));
    await checkStoredBytes(store, tenant, { what: "open a sandbox", bytesMax });
    const { lease, record } = await this.#acquire({ tenant, spec, signal });
    try {
      signal?.throwIfAborted();
      await store.sandboxes.insert(record);
    } catch (error) {
      await lease.release().catch((cause: unknown) => this.#stuck(record.id, cause));
      throw error;
    }
    const untilEnded = held.move();
    const sandbox = new OpenSandbox({
      record,
      spec: { ...spec, limits: record.limits },
      lease,
      onEnded: async (reason) => {
        await this.#ended(record.id, reason);
        untilEnded.dispose();
      },
      onStuck: (error) => this.#stuck(record.id, error),
    });
    this.#open.set(record.id, sandbox);
    this.#options.log.info("sandbox opened", { sandbox_id: record.id, worker: record.workerId });
    if (signal?.aborted) {
      // Nobody learns of it, so nobody would end it.
      await sandbox.end({ reason: "user", graceMs: 0 });
      throw signal.reason;
    }
    return record;
  }

  async #acquire({ tenant, spec, signal }: Wanted) {
    const id = newId();
    const claim = spec.placement === null ? null : await this.#claim(id, { tenant, spec, signal });
    const lease: HeldLease = claim ?? (await this.#openHere({ tenant, spec, signal }));
    const record: SandboxRecord = {
      id,
      tenant,
      limits: claim?.limits ?? spec.limits,
      labels: spec.labels,
      placement: spec.placement,
      workerId: claim?.workerId ?? null,
      idleSeconds: spec.idleSeconds,
      lifetimeSeconds: spec.lifetimeSeconds,
      createdAt: this.#clock.now(),
      endedAt: null,
      reason: null,
      instance: this.#options.instance,
    };
    return { lease, record };
  }

  /** Claims a worker for it, within the time that a new one may wait. */
  async #claim(id: string, { tenant, spec, signal }: Wanted): Promise<WorkerClaim> {
    const { pool, admissionWaitMs: waitMs = ADMISSION_WAIT_MS } = this.#options;
    const placement = { id, tenant, spec, createdAt: this.#clock.now() };
    const stop = this.#anyOf(signal);
    try {
      return await claimWorker(pool, placement, { waitMs, signal: stop });
    } catch (error) {
      throw this.#isStopping ? stopping() : error;
    }
  }

  async #openHere({ tenant, spec, signal }: Wanted): Promise<HeldLease> {
    const reservation = await this.#reserve(tenant, spec.limits, signal);
    try {
      return await this.#options.provider.open(reservation, { signal: this.#anyOf(signal) });
    } catch (error) {
      reservation.cancel();
      throw error;
    }
  }

  async #reserve(
    tenant: string,
    limits: Limits,
    signal: AbortSignal | undefined,
  ): Promise<Reservation> {
    const { provider, admissionWaitMs = ADMISSION_WAIT_MS } = this.#options;
    const late = AbortSignal.timeout(admissionWaitMs);
    const stop = this.#anyOf(signal);
    try {
      return await provider.reserve(limits, { tenant, signal: AbortSignal.any([late, stop]) });
    } catch (error) {
      if (!late.aborted || stop.aborted) throw this.#isStopping ? stopping() : error;
      throw new CprgError("unavailable", "Cannot open a sandbox: no room beside the others", {
        reason: "SANDBOXES_FULL",
        hint: "Ask for smaller limits, or wait for others to end",
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  #anyOf(signal: AbortSignal | undefined): AbortSignal {
    const stop = this.#stopping.signal;
    return signal === undefined ? stop : AbortSignal.any([stop, signal]);
  }

  /** An open one holds its memory for hours: what is left must be enough for the others. */
  #checkMemory(tenant: string, { mem_mb: asked }: Limits): void {
    const { tenantMemMb: most = Number.POSITIVE_INFINITY } = this.#options;
    const own = this.#held().filter((one) => one.tenant === tenant && one.placement === null);
    const held = own.reduce((sum, { limits }) => sum + limits.mem_mb, 0);
    if (held + asked <= most) return;
    throw new CprgError(
      "resource_exhausted",
      `Cannot open a sandbox: with ${asked} MiB tenant "${tenant}" would hold more than ${most} MiB`,
      {
        reason: "TENANT_MEMORY",
        field: "limits.mem_mb",
        hint: "End one of them, or ask for less",
        retryAfterSeconds: RETRY_SECONDS,
      },
    );
  }

  #checkRoom(tenant: string): void {
    if (this.#isStopping) throw stopping();
    this.#checkDescriptors();
    const most = this.#options.tenantSandboxes ?? TENANT_SANDBOXES_DEFAULT;
    if (this.count(tenant) < most) return;
    throw new CprgError(
      "resource_exhausted",
      `Cannot open a sandbox: tenant "${tenant}" has ${most} open, as many as it may`,
      { reason: "TENANT_SANDBOXES", hint: "End one of them", retryAfterSeconds: RETRY_SECONDS },
    );
  }

  /** Connections may take what sandboxes need: better refused than half started. */
  #checkDescriptors(): void {
    const free = this.#options.freeDescriptors ?? freeDescriptors;
    if (free() >= DESCRIPTORS_PER_JOB) return;
    throw new CprgError("unavailable", "Cannot start: this server has too many files open", {
      reason: "DESCRIPTORS",
      hint: "Its operator can raise its limit (ulimit -n)",
      retryAfterSeconds: RETRY_SECONDS,
    });
  }

  async #ended(id: string, reason: SandboxEnd): Promise<void> {
    const { store, log } = this.#options;
    try {
      await storeEnd(() => store.sandboxes.end(id, reason, this.#clock.now()), {
        log,
        fields: { sandbox_id: id },
        stopping: this.#stopping.signal,
      });
      log.info("sandbox ended", { sandbox_id: id, reason });
    } catch (error) {
      log.error("sandbox end not stored, given up", { sandbox_id: id, error });
    } finally {
      this.#open.delete(id);
    }
  }

  #stuck(id: string, error: unknown): void {
    this.#options.log.error("sandbox not removed", { sandbox_id: id, error });
  }
}

function notFound(id: string): CprgError {
  return new CprgError("not_found", `Cannot find sandbox ${shownId(id)}: there is none`, {
    reason: "SANDBOX_NOT_FOUND",
  });
}

function stopping(): CprgError {
  return new CprgError("unavailable", "Cannot open a sandbox: the server is stopping", {
    reason: "STOPPING",
    retryAfterSeconds: RETRY_SECONDS,
  });
}
