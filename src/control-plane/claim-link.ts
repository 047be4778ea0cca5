/**
 * A claim, as whoever uses it sees it: the stream to its worker changes when one is lost and the
 * worker attaches again, the claim does not.
 */

import type { CallOptions, Mux, UnaryMethod } from "../bridge/contract.ts";
import { HEARTBEAT_ACK, WORKER_RELEASE } from "../bridge/methods.ts";
import { assert, CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { Claim, ClaimResponse } from "../gen/messages.ts";
import { TTL_MARGIN_MS } from "./liveness.ts";
import { WakeUps } from "./wake-ups.ts";

const RELEASE_MS_MAX = 60_000;

/** How a claim is made. */
export interface ClaimLinkOptions {
  readonly claim: Claim;
  /** 0: silence does not end it. */
  readonly ttlSeconds: number;
  readonly mux: Mux;
  /** Called once, when it is over: released, or lost. */
  onOver(link: ClaimLink): void;
}

/** A claim that is asked for, held, waited for in the grace, or over. */
export class ClaimLink {
  readonly claim: Claim;
  readonly #options: ClaimLinkOptions;
  readonly #over = new AbortController();
  #granted: ClaimResponse | null = null;
  #mux: Mux | null;
  /** Execs that the worker had when it attached last. */
  #execs: ReadonlySet<string> = new Set();
  readonly #changes = new WakeUps();
  #expiry: Timer | null = null;
  #release: Promise<void> | null = null;

  constructor(options: ClaimLinkOptions) {
    this.#options = options;
    this.claim = options.claim;
    this.#mux = options.mux;
  }

  /** What the worker answered the claim with. */
  get granted(): ClaimResponse {
    assert(this.#granted !== null, "a claim in use was granted");
    return this.#granted;
  }

  /** Whether its worker enforces limits. */
  get hasLimits(): boolean {
    return Object.keys(this.granted.limits).length > 0;
  }

  /** In force for all of it, as its worker says; empty where it enforces none. */
  get limits(): Partial<Limits> {
    return this.granted.limits;
  }

  /** Whether the worker granted it, and the user still wants it: what a worker is told to keep. */
  get isKept(): boolean {
    return this.#granted !== null && this.#release === null && !this.#over.signal.aborted;
  }

  /** Aborted, with the CprgError that says why, when nothing of it can be used any more. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** The stream of now. @throws CprgError `unavailable` while there is none */
  get mux(): Mux {
    if (this.#over.signal.aborted) throw this.#over.signal.reason;
    if (this.#mux !== null && !this.#mux.hasEnded) return this.#mux;
    throw new CprgError("unavailable", "the worker is not connected", { reason: "REATTACHING" });
  }

  /** Whether the worker said, when it attached last, that it has this exec. */
  hasExec(execId: string): boolean {
    return this.#execs.has(execId);
  }

  /**
   * The stream, as soon as there is one: in the grace this waits for the worker to come back.
   *
   * @throws CprgError `unavailable` WORKER_LOST when it does not; `canceled` of the signal
   */
  async attached(signal?: AbortSignal): Promise<Mux> {
    for (;;) {
      this.#over.signal.throwIfAborted();
      if (signal?.aborted) throw new CprgError("canceled", "given up while the worker was away");
      if (this.#mux !== null && !this.#mux.hasEnded) return this.#mux;
      await this.#changes.wait(signal);
    }
  }

  /** A unary call, which waits for the grace but is made once: a loss of the stream fails it. */
  async call<Request, Response>(
    method: UnaryMethod<Request, Response>,
    request: Partial<Request>,
    options: CallOptions = {},
  ): Promise<Response> {
    const mux = await this.attached(options.signal);
    return await mux.call(method, request, options);
  }

  /** As {@link call}, and made again after each loss: for calls that do no more when they come twice. */
  async callUntilAnswered<Request, Response>(
    method: UnaryMethod<Request, Response>,
    request: Partial<Request>,
    options: CallOptions = {},
  ): Promise<Response> {
    for (;;) {
      const mux = await this.attached(options.signal);
      try {
        return await mux.call(method, request, options);
      } catch (error) {
        if (!mux.hasEnded || !isUnavailable(error)) throw error;
      }
    }
  }

  /** Ends it; resolves when the worker says that nothing of it runs, or is gone. Idempotent. */
  release(): Promise<void> {
    this.#release ??= this.#doRelease();
    return this.#release;
  }

  /** The worker granted it. */
  grant(granted: ClaimResponse): void {
    this.#granted = granted;
    this.renew();
  }

  /** The worker holds it, and was told so. */
  renew(): void {
    const { ttlSeconds, mux } = this.#options;
    const isCounted = ttlSeconds > 0 && mux.peer.has(HEARTBEAT_ACK);
    this.#expiry?.clear();
    if (!isCounted || this.#granted === null || this.#over.signal.aborted) return;
    this.#expiry = startTimer(ttlSeconds * 1000 + TTL_MARGIN_MS, () =>
      this.lose("no heartbeat renewed the claim for its ttl"),
    );
  }

  /** Its stream is lost; it may come back. */
  detach(): void {
    this.#mux = null;
  }

  /** The worker has come back with it. */
  attach(mux: Mux, execs: ReadonlySet<string>): void {
    if (this.#over.signal.aborted) return;
    this.#mux = mux;
    this.#execs = execs;
    this.renew();
    this.#changes.wake();
  }

  /** It is lost for good. */
  lose(why: string): void {
    this.#end(
      new CprgError("unavailable", `the worker is lost: ${why}`, { reason: "WORKER_LOST" }),
    );
  }

  async #doRelease(): Promise<void> {
    // A worker that comes back meanwhile is told not to keep it: then it is over, too.
    while (!this.#over.signal.aborted) {
      const mux = await this.attached().catch(() => null);
      if (mux !== null && (await this.#releaseOver(mux))) break;
    }
    this.#end(new CprgError("failed_precondition", "the claim was released"));
  }

  /** Whether it is settled: not when the stream was lost before the answer. */
  async #releaseOver(mux: Mux): Promise<boolean> {
    const request = { claim: this.claim, reason: "released" };
    try {
      await mux.call(WORKER_RELEASE, request, { timeoutMs: RELEASE_MS_MAX, signal: this.over });
    } catch (error) {
      if (mux.hasEnded && isUnavailable(error)) return false;
      const isGone = CprgError.is(error) && error.reason === "STALE_EPOCH";
      // One that cannot let go is not to be used again.
      if (!isGone && !this.over.aborted) mux.close(CprgError.from(error));
    }
    return true;
  }

  #end(why: CprgError): void {
    if (this.#over.signal.aborted) return;
    this.#expiry?.clear();
    this.#over.abort(why);
    this.#changes.wake();
    this.#options.onOver(this);
  }
}

/** A call that failed so on a stream that has ended may never have arrived, or its answer may not have. */
export function isUnavailable(error: unknown): boolean {
  return CprgError.is(error) && error.code === "unavailable";
}
