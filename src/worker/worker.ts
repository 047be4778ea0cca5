/**
 * A worker from its first dial to its exit code: one stream at a time, dialled again for ever, claims
 * that survive the loss of one where both sides can attach again.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { CallEnd, Mux, PeerCapabilities } from "../bridge/contract.ts";
import type { Dialed } from "../bridge/dialer.ts";
import { CLAIM_LIMITS, WORKER_SECRET } from "../bridge/methods.ts";
import { openMux } from "../bridge/mux.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import { canReattach, listedByBoth, WORKER_FEATURES } from "./capabilities.ts";
import { ClaimHolder, type ClaimHolderOptions } from "./claim-holder.ts";
import type { ClaimKey } from "./claim-table.ts";
import { startHeartbeats } from "./heartbeat.ts";
import type { JobRunner } from "./job-methods.ts";
import { workerHandlers } from "./methods.ts";
import { Reconnect, type StreamEnd, WORKER_EXIT } from "./reconnect.ts";

/** How long the control plane may take to attach again (section 8, "Reattach"). */
export const REATTACH_MS_MAX = 10_000;
/** How long answers that are on their way are waited for before the stream is closed. */
const LAST_ANSWERS_MS_MAX = 5000;
const POLL_MS = 5;

/** What it registers with, beside what never changes. */
export interface DialRequest {
  /** What it lists. */
  readonly methods: readonly string[];
  readonly slots: number;
  readonly claims: readonly ClaimKey[];
  readonly signal: AbortSignal;
}

/** What a worker is made of. */
export interface WorkerOptions extends Pick<ClaimHolderOptions, "slots" | "openPlace"> {
  /** Dials the control plane. @throws CprgError as the dialer of the bridge */
  dial(request: DialRequest): Promise<Dialed>;
  /** Keeps the secret that the control plane gave for this worker's id. */
  saveSecret(secret: string): void;
  /** Variables of every exec, beneath those of its claim. */
  readonly variables: Readonly<Record<string, string>>;
  readonly readBytesMax: number;
  /** Who runs jobs; without one `job.Run` is neither served nor listed. */
  readonly jobs?: JobRunner | undefined;
  /** Its places enforce limits, which is listed then. */
  readonly hasLimits?: boolean;
  /** Ends after its first claim. */
  readonly isOnce: boolean;
  /** Lists no capability: it is a plain peer, with which no optional feature is used. */
  readonly isPlain?: boolean;
  readonly log: Log;
  readonly clock?: Clock;
  readonly reconnect?: Reconnect;
  readonly reattachMsMax?: number;
}

/** How it ended. */
export interface WorkerEnd {
  readonly exitCode: number;
  /** Why, where it did not end by itself. */
  readonly error: CprgError | undefined;
}

/** One worker. */
export class Worker {
  readonly holder: ClaimHolder;
  readonly #options: WorkerOptions;
  readonly #clock: Clock;
  readonly #reconnect: Reconnect;
  readonly #handlers: ReturnType<typeof workerHandlers>;
  readonly #methods: readonly string[];
  readonly #startedMs: number;
  /** Aborted when it is to end: by a drain that is over, or a kill. */
  readonly #ending = new AbortController();
  #mux: Mux | null = null;
  /** The last stream could be attached to again, so the next one has to be. */
  #isReattaching = false;
  #reattached: (() => void) | null = null;
  #wasKilled = false;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#startedMs = this.#clock.monotonicMs();
    this.#reconnect = options.reconnect ?? new Reconnect();
    this.holder = new ClaimHolder({
      slots: options.slots,
      openPlace: options.openPlace,
      log: options.log,
      clock: this.#clock,
      onEnded: () => {
        if (options.isOnce) this.drain();
      },
    });
    this.#handlers = workerHandlers({
      holder: this.holder,
      variables: options.variables,
      readBytesMax: options.readBytesMax,
      jobs: options.jobs,
      onDrain: () => this.drain(),
      onReattach: () => this.#reattached?.(),
    });
    const features = [...WORKER_FEATURES, ...(options.hasLimits === true ? [CLAIM_LIMITS] : [])];
    this.#methods = options.isPlain ? [] : [...this.#handlers.names, ...features];
  }

  /** Finishes its claims, takes no other, and ends. Idempotent. */
  drain(): void {
    this.holder.drain();
    void this.holder.whenEmpty().then(() => this.#close());
  }

  /** Ends every claim at once, and itself. */
  async kill(): Promise<void> {
    this.#wasKilled = true;
    this.holder.drain();
    await this.holder.end(this.holder.table.all(), "shutdown");
    this.#mux?.close();
    this.#ending.abort();
  }

  /** Works until it is refused, drained or killed. Never rejects. */
  async run(): Promise<WorkerEnd> {
    const { log } = this.#options;
    while (!this.#ending.signal.aborted) {
      const end = await this.#serveOne();
      if (this.#ending.signal.aborted) break;
      const { error } = end;
      const next = this.#reconnect.next(end);
      if (next.type === "stop" || !this.#isReattaching) await this.#endClaims();
      if (next.type === "stop") return { exitCode: next.exitCode, error };
      // With --once that was the end of the one claim.
      if (this.#ending.signal.aborted) break;
      const seconds = Math.round(next.pauseMs / 100) / 10;
      log.warn("stream lost, dialling again", { seconds, why: error?.message ?? "closed" });
      await sleep(next.pauseMs, undefined, { signal: this.#ending.signal }).catch(() => undefined);
    }
    return { exitCode: this.#wasKilled ? WORKER_EXIT.failed : WORKER_EXIT.done, error: undefined };
  }

  /** Dials, and serves one stream to its end. */
  async #serveOne(): Promise<StreamEnd> {
    let dialed: Dialed;
    try {
      dialed = await this.#options.dial({
        methods: this.#methods,
        slots: this.#options.slots,
        claims: this.holder.table.held(),
        signal: this.#ending.signal,
      });
    } catch (error) {
      return { error: CprgError.from(error, "dial"), openMs: null };
    }
    const openedMs = this.#clock.monotonicMs();
    this.#options.log.info("connected", { control: dialed.control.version });
    const { error } = await this.#serve(dialed);
    return { error, openMs: this.#clock.monotonicMs() - openedMs };
  }

  async #serve(dialed: Dialed): Promise<CallEnd> {
    const both = listedByBoth(this.#methods, dialed.peer);
    const saved = this.#saveSecret(dialed, undefined);
    const stopWaiting = await this.#attach(both);
    const mux = openMux(dialed.stream, {
      handlers: this.#handlers,
      own: this.#methods,
      peer: both,
      onBug: (error, context) =>
        this.#options.log.error("a method failed", { method: context?.method ?? "", error }),
    });
    this.#mux = mux;
    const heartbeats = startHeartbeats({
      mux,
      holder: this.holder,
      clock: this.#clock,
      startedMs: this.#startedMs,
      // Its headers may come late, so they are looked at each time.
      intervalSeconds: () => dialed.control.heartbeatSeconds,
    });
    // It may have become empty, or been killed, while nobody listened.
    if (this.holder.table.isDraining && this.holder.table.isEmpty) void this.#close();
    const end = await mux.closed;
    heartbeats.stop();
    stopWaiting();
    this.#mux = null;
    this.#isReattaching = canReattach(both);
    this.#saveSecret(dialed, saved);
    // Whoever closes a stream waits for its status (section 8, "Drain"), but not for ever.
    if (this.#ending.signal.aborted) await dialed.gone;
    return end;
  }

  /** Keeps the secret that the headers bring, also where they come late. Returns it. */
  #saveSecret({ peer, control }: Dialed, saved: string | undefined): string | undefined {
    const { secret } = control;
    const isGiven = listedByBoth(this.#methods, peer).has(WORKER_SECRET);
    if (isGiven && secret !== undefined && secret !== saved) this.#options.saveSecret(secret);
    return secret;
  }

  #endClaims(): Promise<void> {
    return this.holder.end(this.holder.table.all(), "worker_lost");
  }

  /** Before any frame: refuses calls on claims where the control plane has to attach first. */
  async #attach(both: PeerCapabilities): Promise<() => void> {
    if (!this.#isReattaching || this.holder.table.isEmpty) return () => undefined;
    if (!canReattach(both)) {
      await this.holder.reattach([]);
      return () => undefined;
    }
    this.holder.awaitReattach();
    const timer = setTimeout(
      () => void this.holder.reattach([]),
      this.#options.reattachMsMax ?? REATTACH_MS_MAX,
    );
    this.#reattached = () => clearTimeout(timer);
    return () => clearTimeout(timer);
  }

  /** Closes the stream once nothing is left to answer. */
  async #close(): Promise<void> {
    const mux = this.#mux;
    const untilMs = performance.now() + LAST_ANSWERS_MS_MAX;
    while (mux !== null && mux.servedCalls > 0 && performance.now() < untilMs) await sleep(POLL_MS);
    this.#ending.abort();
    mux?.close();
  }
}
