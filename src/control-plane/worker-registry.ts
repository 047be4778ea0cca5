/**
 * The workers that are connected: who an id belongs to, which claims each holds, and who waits for
 * one. In memory; claims that a lost stream leaves behind are given up.
 */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { FrameStream, Mux } from "../bridge/contract.ts";
import { Handlers } from "../bridge/handlers.ts";
import type { Admission, Admitted } from "../bridge/listener.ts";
import { HEARTBEAT_SECONDS_DEFAULT, type Registration } from "../bridge/metadata.ts";
import {
  CREDIT,
  HEARTBEAT,
  HEARTBEAT_ACK,
  HTTP2_PING,
  WORKER_CLAIM,
  WORKER_REATTACH,
  WORKER_RELEASE,
  WORKER_SECRET,
} from "../bridge/methods.ts";
import { openMux } from "../bridge/mux.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import type { Claim, ClaimRequest, ClaimResponse } from "../gen/messages.ts";

/** Most workers that are remembered; beyond it new ids are refused. */
export const WORKERS_MAX = 20_000;
const CLAIM_MS_MAX = 15 * 60 * 1000;
const RELEASE_MS_MAX = 60_000;

const CAPABILITIES = [CREDIT.name, HEARTBEAT_ACK, HTTP2_PING, WORKER_REATTACH.name, WORKER_SECRET];

/** How workers are let in. */
export interface WorkerRegistryOptions {
  /** @throws CprgError `unauthenticated` */
  authenticate(token: string): void;
  readonly version: string;
  readonly log: Log;
  readonly heartbeatSeconds?: number;
}

/** A claim that a worker granted. */
export interface ClaimedWorker {
  readonly claim: Claim;
  readonly mux: Mux;
  readonly granted: ClaimResponse;
  /** Ends it; resolves when the worker says that nothing of it runs, or is gone. Idempotent. */
  release(): Promise<void>;
}

interface Known {
  readonly id: string;
  readonly secretHash: Buffer | null;
  registration: Registration;
  mux: Mux | null;
  /** Claims that it holds or is asked to hold, by task. */
  readonly claims: Map<string, Claim>;
}

/** Connected workers. */
export class WorkerRegistry {
  readonly #options: WorkerRegistryOptions;
  readonly #workers = new Map<string, Known>();
  #waiting: (() => void)[] = [];
  #isClosed = false;
  /** For the listener. */
  readonly admission: Admission<null> = {
    authenticate: (token) => {
      this.#options.authenticate(token);
      return null;
    },
    admit: (registration) => this.#admit(registration),
  };

  constructor(options: WorkerRegistryOptions) {
    this.#options = options;
  }

  /** Claims that are held. */
  get claimCount(): number {
    return [...this.#workers.values()].reduce((sum, { claims }) => sum + claims.size, 0);
  }

  /** Ids of those that are connected. */
  get connected(): readonly string[] {
    return [...this.#workers.values()].filter(({ mux }) => mux !== null).map(({ id }) => id);
  }

  /**
   * Claims a worker, as soon as one has a free slot.
   *
   * @throws CprgError what the worker refused the claim with; the signal's reason
   */
  async claim(
    request: Partial<ClaimRequest> & Pick<ClaimRequest, "taskId" | "epoch">,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<ClaimedWorker> {
    const claim: Claim = { taskId: request.taskId, epoch: request.epoch };
    const worker = await this.#reserve(claim, signal);
    const { mux } = worker;
    const options = { timeoutMs: CLAIM_MS_MAX, ...(signal === undefined ? {} : { signal }) };
    try {
      const granted = await mux.call(WORKER_CLAIM, request, options);
      let release: Promise<void> | null = null;
      return {
        claim,
        mux,
        granted,
        release: () => {
          release ??= this.#release(worker, { claim, mux });
          return release;
        },
      };
    } catch (error) {
      this.#forget(worker, claim);
      throw error;
    }
  }

  /** Ends every stream and lets nobody in. */
  close(): void {
    this.#isClosed = true;
    const error = new CprgError("unavailable", "the control plane stops", { reason: "SHUTDOWN" });
    for (const { mux } of this.#workers.values()) mux?.close(error);
    this.#wake();
  }

  #admit(registration: Registration): Admitted {
    if (this.#isClosed) {
      throw new CprgError("unavailable", "the control plane stops", { reason: "SHUTDOWN" });
    }
    const { workerId, secret } = registration;
    const known = this.#workers.get(workerId);
    const isNew = known === undefined;
    if (!isNew) checkOwner(known, secret);
    else if (this.#workers.size >= WORKERS_MAX) {
      throw new CprgError("resource_exhausted", "too many workers", { reason: "TOO_MANY_WORKERS" });
    }
    const given = isNew && registration.methods.includes(WORKER_SECRET) ? newSecret() : undefined;
    const worker: Known = known ?? {
      id: workerId,
      secretHash: given === undefined ? null : hashOf(given),
      registration,
      mux: null,
      claims: new Map(),
    };
    return {
      control: {
        methods: CAPABILITIES,
        version: this.#options.version,
        heartbeatSeconds: this.#options.heartbeatSeconds ?? HEARTBEAT_SECONDS_DEFAULT,
        secret: given,
      },
      connected: (stream) => this.#connected(worker, registration, stream),
    };
  }

  #connected(worker: Known, registration: Registration, stream: FrameStream): void {
    worker.mux?.close(
      new CprgError("aborted", "its id came again, rightfully", { reason: "REPLACED" }),
    );
    this.#workers.set(worker.id, worker);
    worker.registration = registration;
    // A stream that was lost took its claims with it: those that come back are told to end.
    worker.claims.clear();
    const peer = new Set(registration.methods);
    const mux = openMux(stream, {
      handlers: heartbeatHandlers(worker),
      own: CAPABILITIES,
      peer,
      onBug: (error) => this.#options.log.error("a heartbeat failed", { error }),
    });
    worker.mux = mux;
    this.#options.log.info("worker connected", { worker: worker.id });
    if (peer.has(WORKER_REATTACH.name)) this.#dropClaims(mux, registration.claims);
    void mux.closed.then(({ error }) => {
      this.#options.log.info("worker lost", { worker: worker.id, why: error?.message ?? "closed" });
      if (worker.mux !== mux) return;
      worker.mux = null;
      worker.claims.clear();
      this.#wake();
    });
    this.#wake();
  }

  /** Before any other call; the worker refuses those until it has come. */
  #dropClaims(mux: Mux, claims: readonly Claim[]): void {
    const verdicts = claims.map((claim) => ({ claim, keep: false, reason: "the stream was lost" }));
    void mux.call(WORKER_REATTACH, { verdicts }).catch(() => undefined);
  }

  /** Takes a slot in the step that finds it free: whoever waits beside this one must not find it too. */
  async #reserve(
    claim: Claim,
    signal: AbortSignal | undefined,
  ): Promise<Known & { readonly mux: Mux }> {
    for (;;) {
      if (signal?.aborted) throw signal.reason;
      if (this.#isClosed) throw new CprgError("unavailable", "the control plane stops");
      for (const worker of this.#workers.values()) {
        const { mux, claims, registration } = worker;
        if (mux !== null && claims.size < registration.slots) {
          claims.set(claim.taskId, claim);
          return worker as Known & { readonly mux: Mux };
        }
      }
      await this.#change(signal);
    }
  }

  #change(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      signal?.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  async #release(
    worker: Known,
    { claim, mux }: { readonly claim: Claim; readonly mux: Mux },
  ): Promise<void> {
    try {
      const reason = "released";
      await mux.call(WORKER_RELEASE, { claim, reason }, { timeoutMs: RELEASE_MS_MAX });
    } catch (error) {
      // A worker that is gone holds nothing; one that cannot let go is not to be used again.
      if (worker.mux === mux) mux.close(CprgError.from(error));
    }
    this.#forget(worker, claim);
  }

  #forget(worker: Known, { taskId, epoch }: Claim): void {
    if (worker.claims.get(taskId)?.epoch === epoch) worker.claims.delete(taskId);
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** Stands by the claims that it made, and by no other. */
function heartbeatHandlers(worker: Known): Handlers {
  return new Handlers().unary(HEARTBEAT, ({ claims }) => {
    const isOurs = ({ taskId, epoch }: Claim): boolean =>
      worker.claims.get(taskId)?.epoch === epoch;
    return {
      renewed: claims.filter(isOurs),
      dropped: claims.filter((claim) => !isOurs(claim)),
    };
  });
}

function checkOwner({ id, secretHash }: Known, secret: string | undefined): void {
  if (secretHash === null) return;
  if (secret !== undefined && timingSafeEqual(hashOf(secret), secretHash)) return;
  throw new CprgError("permission_denied", `${id} belongs to another worker`, {
    reason: "ID_TAKEN",
  });
}

function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

function hashOf(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}
