/**
 * One worker: whom its id belongs to, its stream of now, and its claims over the loss of a stream
 * (proto/PROTOCOL.md sections 7 and 8).
 */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { CallEnd, FrameStream, Mux, PeerCapabilities } from "../bridge/contract.ts";
import { Handlers } from "../bridge/handlers.ts";
import type { Registration } from "../bridge/metadata.ts";
import {
  CREDIT,
  HEARTBEAT,
  HEARTBEAT_ACK,
  HTTP2_PING,
  WORKER_CLAIM,
  WORKER_REATTACH,
  WORKER_SECRET,
} from "../bridge/methods.ts";
import { openMux } from "../bridge/mux.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Claim, ClaimRequest, RunningExec } from "../gen/messages.ts";
import { ClaimLink } from "./claim-link.ts";
import type { Liveness } from "./liveness.ts";
import { watchSilence } from "./silence.ts";

/** What the control plane lists. */
export const CAPABILITIES: readonly string[] = [
  CREDIT.name,
  HEARTBEAT_ACK,
  HTTP2_PING,
  WORKER_REATTACH.name,
  WORKER_SECRET,
];

const CLAIM_MS_MAX = 15 * 60 * 1000;
/** Before it answers, a worker ends the claims that are not kept. */
const REATTACH_MS_MAX = 60_000;

/** Whom an id belongs to. */
export interface Owner {
  /** Of the token that it came with first. */
  readonly tokenHash: string;
  /** Of its secret; null for a worker without `worker.secret`. */
  readonly secretHash: Buffer | null;
}

/** What its registry gives a worker. */
export interface WorkerContext {
  readonly liveness: Liveness;
  readonly log: Log;
  /** A slot may have become free, or a stream has come or gone. */
  onChange(): void;
}

/** A claim request with what it cannot be without. */
export type ClaimOrder = Partial<ClaimRequest> & Pick<ClaimRequest, "taskId" | "epoch">;

/** A worker that has registered. */
export class RegisteredWorker {
  readonly id: string;
  readonly owner: Owner;
  readonly #context: WorkerContext;
  /** Claims that it holds or is asked to hold, by task. */
  readonly #links = new Map<string, ClaimLink>();
  #slots = 0;
  #mux: Mux | null = null;
  /** It has been told which claims it keeps, and can be asked for others. */
  #isReady = false;
  /** When its claims are lost unless it has attached again; null while it is attached. */
  #graceEndsMs: number | null = null;
  #grace: Timer | null = null;
  #wasHeard = false;

  constructor(id: string, owner: Owner, context: WorkerContext) {
    this.id = id;
    this.owner = owner;
    this.#context = context;
  }

  get isConnected(): boolean {
    return this.#mux !== null;
  }

  get claimCount(): number {
    return this.#links.size;
  }

  /** It came once, said nothing, and may never have got its secret. */
  get isForgettable(): boolean {
    return !this.#wasHeard && !this.isConnected && this.#links.size === 0;
  }

  /** Whether it can be asked for a claim now. */
  get isFree(): boolean {
    return this.#isReady && this.#links.size < this.#slots;
  }

  /** A stream of its rightful owner: the one before is replaced, claims of both sides go on. */
  connected(registration: Registration, stream: FrameStream): void {
    this.#mux?.close(
      new CprgError("aborted", "its id came again, rightfully", { reason: "REPLACED" }),
    );
    this.#grace?.clear();
    for (const link of this.#links.values()) link.detach();
    this.#slots = registration.slots;
    this.#isReady = false;
    const { log, liveness } = this.#context;
    const mux = openMux(stream, {
      handlers: this.#handlers(),
      own: CAPABILITIES,
      peer: new Set(registration.methods),
      onBug: (error) => log.error("a heartbeat failed", { error }),
    });
    this.#mux = mux;
    log.info("worker connected", { worker: this.id });
    const silence = watchSilence(mux, liveness.silenceMs, () =>
      mux.close(new CprgError("deadline_exceeded", "no frame for too long", { reason: "SILENT" })),
    );
    void mux.closed.then((end) => {
      silence.clear();
      this.#wasHeard ||= mux.counts.framesReceived > 0;
      this.#lost(mux, end);
    });
    void this.#attach(mux, registration.claims);
  }

  /** Asks it for a claim. @throws CprgError what it refuses with; `unavailable` when it is lost */
  async claim(order: ClaimOrder, signal: AbortSignal | undefined): Promise<ClaimLink> {
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
      return link;
    } catch (error) {
      link.lose("it was not granted");
      throw error;
    }
  }

  /** Ends its stream, and all that it holds. */
  close(error: CprgError): void {
    this.#grace?.clear();
    this.#isReady = false;
    this.#loseAll(error.message);
    this.#mux?.close(error);
  }

  /** Stands by the claims that it made, and by no other. */
  #handlers(): Handlers {
    return new Handlers().unary(HEARTBEAT, ({ claims }) => {
      const ours = claims.map((claim) => ({ claim, link: this.#find(claim) }));
      for (const { link } of ours) link?.renew();
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
    for (const link of this.#links.values()) {
      if (!canKeep || !here.has(link)) link.lose("it came back without the claim");
    }
    if (mux.peer.has(WORKER_REATTACH.name) && !(await this.#settle(mux, presented))) return;
    if (this.#mux !== mux) return;
    this.#isReady = true;
    this.#graceEndsMs = null;
    this.#context.onChange();
  }

  /** Tells it what it keeps; false when that has failed. */
  async #settle(mux: Mux, presented: readonly Claim[]): Promise<boolean> {
    const canKeep = canReattach(mux.peer);
    const found = presented.map((claim) => {
      const link = this.#find(claim);
      return { claim, link, keep: canKeep && link?.isKept === true };
    });
    const verdicts = found.map(({ claim, keep }) => {
      return { claim, keep, reason: keep ? "" : "the control plane gave it up" };
    });
    let execs: readonly RunningExec[];
    try {
      ({ execs } = await mux.call(WORKER_REATTACH, { verdicts }, { timeoutMs: REATTACH_MS_MAX }));
    } catch (error) {
      // Where the stream itself is lost, what is left of the grace goes on.
      if (!mux.hasEnded) this.#refused(mux, CprgError.from(error));
      return false;
    }
    for (const { link, keep } of found) {
      if (keep) link?.attach(mux, idsOf(execs, link.claim));
      else link?.lose("it was not kept");
    }
    return true;
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

/**
 * Refuses whoever is not the owner of an id.
 *
 * @throws CprgError `permission_denied` ID_TAKEN
 */
export function checkOwner(
  { id, owner }: Pick<RegisteredWorker, "id" | "owner">,
  shown: { readonly secret: string | undefined; readonly tokenHash: string },
): void {
  const isOwner =
    owner.secretHash === null
      ? owner.tokenHash === shown.tokenHash
      : shown.secret !== undefined && timingSafeEqual(hashOf(shown.secret), owner.secretHash);
  if (isOwner) return;
  throw new CprgError("permission_denied", `${id} belongs to another worker`, {
    reason: "ID_TAKEN",
  });
}

/** A secret for an id. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

/** What is kept of a secret. */
export function hashOf(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}

function canReattach(peer: PeerCapabilities): boolean {
  return [WORKER_REATTACH.name, HEARTBEAT_ACK, CREDIT.name].every((name) => peer.has(name));
}

function idsOf(execs: readonly RunningExec[], { taskId, epoch }: Claim): Set<string> {
  const own = execs.filter(({ claim }) => claim?.taskId === taskId && claim.epoch === epoch);
  return new Set(own.map(({ execId }) => execId));
}
