/** The workers that have registered: who is let in, and who waits for a free one. In memory. */

import type { Admission, Admitted, PeerAddress } from "../bridge/listener.ts";
import type { Registration } from "../bridge/metadata.ts";
import { WORKER_SECRET } from "../bridge/methods.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import type { ClaimLink } from "./claim-link.ts";
import type { WorkerView } from "./contract.ts";
import { LIVENESS, type Liveness } from "./liveness.ts";
import {
  CAPABILITIES,
  type ClaimOrder,
  RegisteredWorker,
  type WorkerContext,
  type WorkerSlot,
} from "./registered-worker.ts";
import { type Candidate, suits } from "./scheduler.ts";
import { WakeUps } from "./wake-ups.ts";
import { QUARANTINE_MS } from "./worker-health.ts";
import { checkWorkerId, type WorkerIdentity } from "./worker-identity.ts";
import { hashOf, WorkerOwner } from "./worker-owner.ts";

/** Most workers that are remembered; beyond it the one that is away longest is forgotten. */
export const WORKERS_MAX = 20_000;
/** How long a worker that was lost is still listed. */
export const LOST_LISTED_MS = 300_000;

/** How workers are let in. */
export interface WorkerRegistryOptions {
  /** @throws CprgError `unauthenticated` */
  authenticate(token: string, from: PeerAddress): Promise<WorkerIdentity> | WorkerIdentity;
  /** Whether a token was ended after {@link authenticate} had accepted it. */
  isRevoked?(tokenId: string): boolean;
  readonly version: string;
  readonly log: Log;
  /** What differs from {@link LIVENESS}. */
  readonly liveness?: Partial<Liveness>;
  /** Default: {@link QUARANTINE_MS}. */
  readonly quarantineMs?: number;
  readonly clock?: Clock;
  /** Something that matters to who waits for a worker has changed. */
  onChange?(): void;
}

/** A token that was accepted. */
export interface Arriving {
  readonly identity: WorkerIdentity;
  /** Says whom an id without a secret belongs to. */
  readonly tokenHash: string;
}

/** For whom a worker is claimed, and what it must have. */
export interface ClaimOptions {
  readonly signal?: AbortSignal;
  /** Default: workers that are shared by all. */
  readonly tenant?: string;
  readonly labels?: Readonly<Record<string, string>>;
}

/** Connected workers, and lost ones whose claims are waited for. */
export class WorkerRegistry implements Admission<Arriving> {
  readonly liveness: Liveness;
  readonly #options: WorkerRegistryOptions;
  readonly #context: WorkerContext;
  readonly #clock: Clock;
  /** In the order in which their ids came first. */
  readonly #workers = new Map<string, RegisteredWorker>();
  readonly #changes = new WakeUps();
  #staleRefused = 0;
  #isClosed = false;

  constructor(options: WorkerRegistryOptions) {
    this.#options = options;
    this.liveness = { ...LIVENESS, ...options.liveness };
    this.#clock = options.clock ?? systemClock;
    this.#context = {
      liveness: this.liveness,
      quarantineMs: options.quarantineMs ?? QUARANTINE_MS,
      clock: this.#clock,
      log: options.log,
      onChange: () => this.#changed(),
      onStale: () => {
        this.#staleRefused += 1;
      },
    };
  }

  /** Claims that are held. */
  get claimCount(): number {
    return [...this.#workers.values()].reduce((sum, { claimCount }) => sum + claimCount, 0);
  }

  /** Ids of those that are connected. */
  get connected(): readonly string[] {
    return [...this.#workers.values()].filter((one) => one.isConnected).map(({ id }) => id);
  }

  /** How often a worker spoke of a claim that was not its own any more. */
  get staleRefused(): number {
    return this.#staleRefused;
  }

  /** Workers that are connected, waited for, or were lost a short while ago. */
  views(): readonly WorkerView[] {
    const since = this.#clock.now() - LOST_LISTED_MS;
    return [...this.#workers.values()]
      .filter((one) => one.claimCount > 0 || (one.lostAt ?? since) >= since)
      .map((one) => one.view());
  }

  /** @throws CprgError `not_found` */
  view(id: string): WorkerView {
    return this.#get(id).view();
  }

  /** Workers as far as placing tasks goes. */
  candidates(): readonly Candidate[] {
    return [...this.#workers.values()]
      .filter((one) => one.isConnected || one.claimCount > 0)
      .map(({ candidate }) => candidate);
  }

  /** Keeps a slot of a worker for a claim; the caller has seen that it has one. */
  reserve(id: string): WorkerSlot {
    return this.#get(id).reserve();
  }

  /** Checks a token; what it gives says who comes. */
  async authenticate(token: string, from: PeerAddress): Promise<Arriving> {
    const identity = await this.#options.authenticate(token, from);
    return { identity, tokenHash: hashOf(token).toString("hex") };
  }

  /** Lets a worker in. @throws CprgError as {@link Admission.admit} */
  admit(registration: Registration, { identity, tokenHash }: Arriving): Admitted {
    if (this.#isClosed) throw shutdown();
    const { workerId, secret, methods } = registration;
    checkWorkerId(workerId, identity);
    const known = this.#workers.get(workerId);
    if (known === undefined) this.#makeRoom();
    const owner = known?.owner ?? new WorkerOwner(workerId, tokenHash);
    const canKeepSecret = methods.includes(WORKER_SECRET);
    const given = owner.admit({ secret, tokenHash, canKeepSecret });
    const worker = known ?? new RegisteredWorker(owner, this.#context, { registration, identity });
    this.#workers.set(workerId, worker);
    return {
      control: {
        methods: CAPABILITIES,
        version: this.#options.version,
        heartbeatSeconds: this.liveness.heartbeatSeconds,
        secret: given,
      },
      connected: (stream) => {
        const { tokenId } = identity;
        const isRevoked = tokenId !== null && this.#options.isRevoked?.(tokenId) === true;
        if (this.#isClosed) stream.close(shutdown());
        else if (isRevoked) stream.close(tokenRevoked());
        else if (this.#workers.get(workerId) !== worker) stream.close(removed());
        else worker.connected({ registration, identity }, stream);
      },
    };
  }

  /**
   * Claims a worker, as soon as one has a free slot.
   *
   * @throws CprgError what the worker refused the claim with; the signal's reason
   */
  async claim(
    order: ClaimOrder,
    { signal, tenant, labels = {} }: ClaimOptions = {},
  ): Promise<ClaimLink> {
    for (;;) {
      if (signal?.aborted) throw signal.reason;
      if (this.#isClosed) throw shutdown();
      const free = [...this.#workers.values()].find(({ candidate }) => {
        const isForIt =
          tenant === undefined ? candidate.tenants === null : suits(candidate, { tenant, labels });
        return isForIt && !candidate.isClosed && candidate.freeSlots > 0;
      });
      if (free !== undefined) return await free.reserve().claim(this.withTtl(order), signal);
      await this.#changes.wait(signal);
    }
  }

  /** An order whose ttl is two heartbeats at least (PROTOCOL.md section 8). */
  withTtl(order: ClaimOrder): ClaimOrder {
    const { claimTtlSeconds: asked = 0 } = order;
    if (asked === 0) return order;
    return { ...order, claimTtlSeconds: Math.max(asked, 2 * this.liveness.heartbeatSeconds) };
  }

  /** Cuts every stream that came with a token which is revoked now. */
  cut(tokenId: string): void {
    for (const worker of this.#workers.values()) {
      if (worker.tokenId === tokenId) worker.close(tokenRevoked());
    }
  }

  /** Ends a worker's claims, and forgets that others failed. @throws CprgError `not_found` */
  async release(id: string): Promise<void> {
    await this.#get(id).release();
  }

  /** Tells a worker to take no other claim. @throws CprgError `not_found` */
  async drain(id: string): Promise<void> {
    await this.#get(id).drain();
  }

  /** Ends a worker's stream and claims, and forgets whom its id belongs to. @throws `not_found` */
  remove(id: string): void {
    const worker = this.#get(id);
    this.#workers.delete(id);
    worker.close(removed());
    this.#changed();
  }

  /** Ends every stream and every claim, and lets nobody in. */
  close(): void {
    this.#isClosed = true;
    for (const worker of this.#workers.values()) worker.close(shutdown());
    this.#changes.wake();
  }

  #get(id: string): RegisteredWorker {
    const worker = this.#workers.get(id);
    if (worker !== undefined) return worker;
    throw new CprgError("not_found", "Cannot find this worker: there is none", {
      reason: "WORKER_NOT_FOUND",
    });
  }

  /** Workers that ran once never come again: without this, their ids would fill the registry. */
  #makeRoom(): void {
    if (this.#workers.size < WORKERS_MAX) return;
    let oldest: RegisteredWorker | null = null;
    for (const worker of this.#workers.values()) {
      if (worker.lostAt === null || worker.claimCount > 0) continue;
      if (oldest === null || worker.lostAt < (oldest.lostAt ?? 0)) oldest = worker;
    }
    if (oldest !== null) {
      this.#workers.delete(oldest.id);
      return;
    }
    throw new CprgError("resource_exhausted", "too many workers", { reason: "TOO_MANY_WORKERS" });
  }

  #changed(): void {
    this.#changes.wake();
    this.#options.onChange?.();
  }
}

function shutdown(): CprgError {
  return new CprgError("unavailable", "the control plane stops", { reason: "SHUTDOWN" });
}

/** What a worker hears whose token was revoked. */
export function tokenRevoked(): CprgError {
  return new CprgError("unauthenticated", "the token was revoked", { reason: "TOKEN_REVOKED" });
}

function removed(): CprgError {
  return new CprgError("permission_denied", "an administrator removed it", {
    reason: "WORKER_REMOVED",
  });
}
