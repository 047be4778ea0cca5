/** The workers that have registered: who is let in, and who waits for a free one. In memory. */

import type { Admission, Admitted } from "../bridge/listener.ts";
import type { Registration } from "../bridge/metadata.ts";
import { WORKER_SECRET } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import type { ClaimLink } from "./claim-link.ts";
import { LIVENESS, type Liveness } from "./liveness.ts";
import {
  CAPABILITIES,
  type ClaimOrder,
  checkOwner,
  hashOf,
  newSecret,
  RegisteredWorker,
} from "./registered-worker.ts";
import { WakeUps } from "./wake-ups.ts";

/** Most workers that are remembered; beyond it new ids are refused. */
export const WORKERS_MAX = 20_000;

/** How workers are let in. */
export interface WorkerRegistryOptions {
  /** @throws CprgError `unauthenticated` */
  authenticate(token: string): void;
  readonly version: string;
  readonly log: Log;
  /** What differs from {@link LIVENESS}. */
  readonly liveness?: Partial<Liveness>;
}

/** Connected workers, and lost ones whose claims are waited for. */
export class WorkerRegistry implements Admission<string> {
  readonly liveness: Liveness;
  readonly #options: WorkerRegistryOptions;
  readonly #workers = new Map<string, RegisteredWorker>();
  readonly #changes = new WakeUps();
  #isClosed = false;

  constructor(options: WorkerRegistryOptions) {
    this.#options = options;
    this.liveness = { ...LIVENESS, ...options.liveness };
  }

  /** Claims that are held. */
  get claimCount(): number {
    return [...this.#workers.values()].reduce((sum, { claimCount }) => sum + claimCount, 0);
  }

  /** Ids of those that are connected. */
  get connected(): readonly string[] {
    return [...this.#workers.values()].filter((one) => one.isConnected).map(({ id }) => id);
  }

  /** Checks a token; what it gives says whom an id without a secret belongs to. */
  authenticate(token: string): string {
    this.#options.authenticate(token);
    return hashOf(token).toString("hex");
  }

  /** Lets a worker in. @throws CprgError as {@link Admission.admit} */
  admit(registration: Registration, tokenHash: string): Admitted {
    if (this.#isClosed) throw shutdown();
    const { workerId, secret, methods } = registration;
    const known = this.#workers.get(workerId);
    if (known !== undefined) checkOwner(known, { secret, tokenHash });
    else if (this.#workers.size >= WORKERS_MAX) {
      throw new CprgError("resource_exhausted", "too many workers", { reason: "TOO_MANY_WORKERS" });
    }
    const isGiven = known === undefined && methods.includes(WORKER_SECRET);
    const given = isGiven ? newSecret() : undefined;
    const worker = known ?? this.#newWorker(workerId, { tokenHash, secret: given });
    return {
      control: {
        methods: CAPABILITIES,
        version: this.#options.version,
        heartbeatSeconds: this.liveness.heartbeatSeconds,
        secret: given,
      },
      connected: (stream) => {
        const owner = this.#workers.get(workerId) ?? worker;
        // Two that came at once with a new id: the second is a stranger.
        if (owner !== worker) {
          stream.close(taken(workerId));
        } else if (this.#isClosed) {
          stream.close(shutdown());
        } else {
          this.#workers.set(workerId, worker);
          worker.connected(registration, stream);
        }
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
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<ClaimLink> {
    for (;;) {
      if (signal?.aborted) throw signal.reason;
      if (this.#isClosed) throw shutdown();
      const free = [...this.#workers.values()].find((worker) => worker.isFree);
      if (free !== undefined) return await free.claim(order, signal);
      await this.#changes.wait(signal);
    }
  }

  /** Ends every stream and every claim, and lets nobody in. */
  close(): void {
    this.#isClosed = true;
    for (const worker of this.#workers.values()) worker.close(shutdown());
    this.#changes.wake();
  }

  #newWorker(
    id: string,
    { tokenHash, secret }: { readonly tokenHash: string; readonly secret: string | undefined },
  ): RegisteredWorker {
    const secretHash = secret === undefined ? null : hashOf(secret);
    const worker: RegisteredWorker = new RegisteredWorker(
      id,
      { tokenHash, secretHash },
      {
        liveness: this.liveness,
        log: this.#options.log,
        onChange: () => {
          if (worker.isForgettable) this.#workers.delete(id);
          this.#changes.wake();
        },
      },
    );
    return worker;
  }
}

function shutdown(): CprgError {
  return new CprgError("unavailable", "the control plane stops", { reason: "SHUTDOWN" });
}

function taken(id: string): CprgError {
  const message = `${id} belongs to another worker`;
  return new CprgError("permission_denied", message, { reason: "ID_TAKEN" });
}
