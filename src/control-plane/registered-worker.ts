/**
 * One worker: what it says of itself, its stream of now, and its claims over the loss of a stream
 * (proto/PROTOCOL.md sections 7 and 8).
 */

import type { CallEnd, FrameStream, Mux } from "../bridge/contract.ts";
import { Handlers } from "../bridge/handlers.ts";
import type { Registration } from "../bridge/metadata.ts";
import {
  CLAIM_LIMITS,
  CREDIT,
  HEARTBEAT,
  HEARTBEAT_ACK,
  HTTP2_PING,
  WORKER_CLAIM,
  WORKER_DRAIN,
  WORKER_REATTACH,
  WORKER_SECRET,
} from "../bridge/methods.ts";
import { openMux } from "../bridge/mux.ts";
import { watchSilence } from "../bridge/silence.ts";
import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Claim, ClaimRequest } from "../gen/messages.ts";
import { ClaimLink } from "./claim-link.ts";
import type { WorkerStatus, WorkerView } from "./contract.ts";
import type { Liveness } from "./liveness.ts";
import { canReattach, settleClaims } from "./reattach.ts";
import type { Candidate } from "./scheduler.ts";
import { WorkerHealth } from "./worker-health.ts";
import type { WorkerIdentity } from "./worker-identity.ts";
import type { WorkerOwner } from "./worker-owner.ts";

/** What the control plane lists. */
export const CAPABILITIES: readonly string[] = [
  CREDIT.name,
  HEARTBEAT_ACK,
  HTTP2_PING,
  WORKER_REATTACH.name,
  WORKER_SECRET,
  CLAIM_LIMITS,
];

const CLAIM_MS_MAX = 15 * 60 * 1000;
const DRAIN_MS_MAX = 10_000;

/** What its registry gives a worker. */
export interface WorkerContext {
  readonly liveness: Liveness;
  readonly quarantineMs: number;
  readonly clock: Clock;
  readonly log: Log;
  /** A slot may have become free, or a stream has come or gone. */
  onChange(): void;
  /** It spoke of a claim that is not its own any more. */
  onStale(): void;
}

/** A claim request with what it cannot be without. */
export type ClaimOrder = Partial<ClaimRequest> & Pick<ClaimRequest, "taskId" | "epoch">;

/** A slot of a worker that is kept for one claim. */
export interface WorkerSlot {
  readonly workerId: string;
  /** Asks for the claim. @throws CprgError what the worker refuses with; the signal's reason */
  claim(order: ClaimOrder, signal?: AbortSignal): Promise<ClaimLink>;
  /** Gives the slot back when no claim was asked for; idempotent. */
  cancel(): void;
}

/** A worker that has registered. */
export class RegisteredWorker {
  readonly id: string;
  readonly owner: WorkerOwner;
  readonly #context: WorkerContext;
  readonly #health: WorkerHealth;
  /** Claims that it holds or is asked to hold, by task. */
  readonly #links = new Map<string, ClaimLink>();
  /** Slots that are kept for claims that are asked for soon. */
  #reserved = 0;
  #registration: Registration;
  #capabilities: ReadonlySet<string>;
  #identity: WorkerIdentity;
  #mux: Mux | null = null;
  #connectedAt: number | null = null;
  #lostAt: number;
  /** It has been told which claims it keeps, and can be asked for others. */
  #isReady = false;
  /**
   * It refused a claim because its slots are taken by claims that were given up here: none is asked
   * of it until a heartbeat has told, and settled, which.
   */
  #isFull = false;
  /** `asked`: it has yet to be told. */
  #drain: "no" | "asked" | "known" = "no";
  /** When its claims are lost unless it has attached again; null while it is attached. */
  #graceEndsMs: number | null = null;
  #grace: Timer | null = null;

  constructor(
    owner: WorkerOwner,
    context: WorkerContext,
    arriving: { readonly registration: Registration; readonly identity: WorkerIdentity },
  ) {
    this.id = arriving.registration.workerId;
    this.owner = owner;
    this.#context = context;
    this.#registration = arriving.registration;
    this.#capabilities = new Set(arriving.registration.methods);
    this.#identity = arriving.identity;
    this.#lostAt = context.clock.now();
    this.#health = new WorkerHealth({
      restMs: context.quarantineMs,
      onRested: () => context.onChange(),
    });
  }

  get isConnected(): boolean {
    return this.#mux !== null;
  }

  get claimCount(): number {
    return this.#links.size;
  }

  /** Token of its stream of now, or of its last; null: the shared bearer. */
  get tokenId(): string | null {
    return this.#identity.tokenId;
  }

  /** When its last stream was lost, in milliseconds since 1970; null while it has one. */
  get lostAt(): number | null {
    return this.isConnected ? null : this.#lostAt;
  }

  /** As far as placing tasks goes. */
  get candidate(): Candidate {
    return {
      id: this.id,
      labels: this.#labels,
      tenants: this.#identity.tenants,
      freeSlots: Math.max(0, this.#registration.slots - this.#links.size - this.#reserved),
      isClosed:
        !this.#isReady || this.#isFull || this.#drain !== "no" || this.#health.isQuarantined,
      capabilities: this.#capabilities,
    };
  }

  /** As it is seen. */
  view(): WorkerView {
    const { name, version, slots } = this.#registration;
    return Object.freeze({
      id: this.id,
      name,
      labels: this.#labels,
      tenants: this.#identity.tenants,
      status: this.#status,
      version,
      slots,
      claims: [...this.#links.values()].map(({ claim }) => Object.freeze({ ...claim })),
      connectedAt: this.#connectedAt,
      lastSeenAt: this.#lastSeenAt,
      failures: this.#health.failures,
    });
  }

  /** Keeps a slot for a claim that is asked for soon; the caller has seen that there is one. */
  reserve(): WorkerSlot {
    this.#reserved += 1;
    let isKept = true;
    const cancel = (): void => {
      if (!isKept) return;
      isKept = false;
      this.#reserved -= 1;
      this.#context.onChange();
    };
    return {
      workerId: this.id,
      cancel,
      claim: (order, signal) => {
        const claimed = this.#claim(order, signal);
        cancel();
        return claimed;
      },
    };
  }

  /** A stream of its rightful owner: the one before is replaced, claims of both sides go on. */
  connected(
    { registration, identity }: { registration: Registration; identity: WorkerIdentity },
    stream: FrameStream,
  ): void {
    this.#mux?.close(
      new CprgError("aborted", "its id came again, rightfully", { reason: "REPLACED" }),
    );
    this.#grace?.clear();
    for (const link of this.#links.values()) link.detach();
    this.#registration = registration;
    this.#capabilities = new Set(registration.methods);
    this.#identity = identity;
    this.#isReady = false;
    this.#isFull = false;
    // One that knew and holds nothing has ended since: this is its next process.
    if (this.#drain === "known" && registration.claims.length === 0) this.#drain = "no";
    const { log, liveness, clock } = this.#context;
    const mux = openMux(stream, {
      handlers: this.#handlers(),
      own: CAPABILITIES,
      peer: new Set(registration.methods),
      onBug: (error) => log.error("a heartbeat failed", { error }),
    });
    this.#mux = mux;
    this.#connectedAt = clock.now();
    log.info("worker connected", { worker: this.id });
    const silence = watchSilence(mux, liveness.silenceMs, () =>
      mux.close(new CprgError("deadline_exceeded", "no frame for too long", { reason: "SILENT" })),
    );
    const leftMs = (identity.expiresAt ?? Number.POSITIVE_INFINITY) - clock.now();
    const expiry = startTimer(leftMs, () => {
      if (this.#mux === mux) this.close(tokenExpired());
    });
    void mux.closed.then((end) => {
      silence.clear();
      expiry.clear();
      this.#lost(mux, end);
    });
    void this.#attach(mux, registration.claims);
  }

  /** Tells it to finish its claims and take no other; it takes none from now on. */
  async drain(): Promise<void> {
    this.#drain = "asked";
    this.#context.onChange();
    if (this.#mux !== null && this.#isReady) await this.#tellDrain(this.#mux);
  }

  /** Ends its claims, and forgets that others failed. */
  async release(): Promise<void> {
    this.#health.clear();
    await Promise.all([...this.#links.values()].map((link) => link.release()));
    this.#context.onChange();
  }

  /** Ends its stream, and all that it holds. */
  close(error: CprgError): void {
    this.#grace?.clear();
    this.#health.clear();
    this.#isReady = false;
    this.#loseAll(error.message);
    this.#mux?.close(error);
  }

  get #labels(): Readonly<Record<string, string>> {
    return Object.freeze({ ...this.#registration.labels, ...this.#identity.labels });
  }

  get #status(): WorkerStatus {
    if (!this.isConnected) return this.#links.size > 0 ? "reattaching" : "lost";
    if (this.#health.isQuarantined) return "quarantined";
    if (this.#drain !== "no") return "draining";
    if (!this.#isReady) return "reattaching";
    return this.#links.size > 0 ? "busy" : "idle";
  }

  get #lastSeenAt(): number {
    if (this.#mux === null) return this.#lostAt;
    const silentMs = performance.now() - this.#mux.lastFrameMs;
    return Math.round(this.#context.clock.now() - silentMs);
  }

  async #claim(order: ClaimOrder, signal: AbortSignal | undefined): Promise<ClaimLink> {
    const mux = this.#mux;
    if (mux === null) throw new CprgError("unavailable", "the worker is not connected");
    const { taskId, epoch } = order;
    this.#links.get(taskId)?.lose("a newer claim of its task was made");
    const link = new ClaimLink({
      claim: { taskId, epoch },
      ttlSeconds: order.claimTtlSeconds ?? 0,
      mux,
      onOver: (over) => this.#over(over),
    });
    this.#links.set(taskId, link);
    try {
      const options = { timeoutMs: CLAIM_MS_MAX, ...(signal === undefined ? {} : { signal }) };
      const granted = await mux.call(WORKER_CLAIM, order, options);
      link.over.throwIfAborted();
      link.grant(granted);
      this.#health.succeeded();
      return link;
    } catch (error) {
      await this.#notGranted(link, { error: CprgError.from(error), signal });
      throw error;
    }
  }

  async #notGranted(
    link: ClaimLink,
    { error, signal }: { readonly error: CprgError; readonly signal: AbortSignal | undefined },
  ): Promise<void> {
    if (error.reason === "DRAINING") this.#drain = "known";
    else if (error.reason === "ALREADY_CLAIMED") this.#isFull = true;
    else if (signal?.aborted !== true && !isOfTheOrder(error)) this.#health.failed();
    // A call that was given up has not ended at the worker: the slot is free when it has.
    if (signal?.aborted === true || error.code === "deadline_exceeded") await link.release();
    link.lose("it was not granted");
  }

  /** Stands by the claims that it made, and by no other. */
  #handlers(): Handlers {
    return new Handlers().unary(HEARTBEAT, ({ claims }) => {
      const ours = claims.map((claim) => ({ claim, link: this.#find(claim) }));
      for (const { link } of ours) {
        if (link === undefined) this.#context.onStale();
        else link.renew();
      }
      if (this.#isFull && ours.every(({ link }) => link !== undefined)) {
        this.#isFull = false;
        this.#context.onChange();
      }
      return {
        renewed: ours.flatMap(({ claim, link }) => (link === undefined ? [] : [claim])),
        dropped: ours.flatMap(({ claim, link }) => (link === undefined ? [claim] : [])),
      };
    });
  }

  /** Settles, before any other call, which claims are kept. */
  async #attach(mux: Mux, presented: readonly Claim[]): Promise<void> {
    const canKeep = canReattach(mux.peer);
    const here = new Set(presented.map((claim) => this.#find(claim)));
    if (here.has(undefined)) this.#context.onStale();
    for (const link of this.#links.values()) {
      if (!canKeep || !here.has(link)) link.lose("it came back without the claim");
    }
    if (mux.peer.has(WORKER_REATTACH.name) && !(await this.#settle(mux, presented))) return;
    if (this.#mux !== mux || mux.hasEnded) return;
    this.#isReady = true;
    this.#graceEndsMs = null;
    if (this.#drain === "asked") void this.#tellDrain(mux);
    this.#context.onChange();
  }

  /** Tells it what it keeps; false when that has failed. */
  async #settle(mux: Mux, presented: readonly Claim[]): Promise<boolean> {
    try {
      await settleClaims(mux, presented, (claim) => this.#find(claim));
      return true;
    } catch (error) {
      // Where the stream itself is lost, what is left of the grace goes on.
      if (!mux.hasEnded) this.#refused(mux, CprgError.from(error));
      return false;
    }
  }

  async #tellDrain(mux: Mux): Promise<void> {
    try {
      await mux.call(WORKER_DRAIN, { reason: "asked to" }, { timeoutMs: DRAIN_MS_MAX });
      this.#drain = "known";
    } catch (error) {
      // It is given no claim all the same; one whose stream was lost is told again.
      this.#context.log.warn("worker not drained", { worker: this.id, error });
    }
  }

  /** It cannot attach although it lists that it can. */
  #refused(mux: Mux, error: CprgError): void {
    this.#loseAll(error.message);
    mux.close(error);
  }

  #lost(mux: Mux, { error }: CallEnd): void {
    this.#context.log.info("worker lost", { worker: this.id, why: error?.message ?? "closed" });
    if (this.#mux !== mux) return;
    this.#mux = null;
    this.#connectedAt = null;
    this.#lostAt = this.#context.clock.now();
    this.#isReady = false;
    for (const link of this.#links.values()) link.detach();
    if (!canReattach(mux.peer) || error?.reason === "SILENT") {
      this.#loseAll(error?.message ?? "the stream has ended");
    } else if (this.#links.size > 0) {
      this.#graceEndsMs ??= performance.now() + this.#context.liveness.graceMs;
      this.#grace = startTimer(this.#graceEndsMs - performance.now(), () =>
        this.#loseAll("it did not come back"),
      );
    }
    this.#context.onChange();
  }

  #loseAll(why: string): void {
    this.#graceEndsMs = null;
    for (const link of [...this.#links.values()]) link.lose(why);
  }

  #over(link: ClaimLink): void {
    if (this.#links.get(link.claim.taskId) === link) this.#links.delete(link.claim.taskId);
    this.#context.onChange();
  }

  #find({ taskId, epoch }: Claim): ClaimLink | undefined {
    const link = this.#links.get(taskId);
    return link?.claim.epoch === epoch ? link : undefined;
  }
}

/** What any worker would refuse: it says nothing about this one. */
function isOfTheOrder({ code, reason }: CprgError): boolean {
  return reason === "CLONE_FAILED" || code === "invalid_argument";
}

function tokenExpired(): CprgError {
  return new CprgError("unauthenticated", "the token has expired", { reason: "TOKEN_EXPIRED" });
}
