/**
 * The claims of a worker with all that belongs to them: place, environment, execs. The environment of
 * a claim is in this process's memory and nowhere else, and forgotten when the claim ends.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, systemClock } from "../core/clock.ts";
import { assert, CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import type { Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { ClaimRequest } from "../gen/messages.ts";
import { ClaimCalls } from "./claim-calls.ts";
import { type ClaimOrder, parseClaim } from "./claim-request.ts";
import { type ClaimKey, ClaimTable } from "./claim-table.ts";
import { ExecTable } from "./exec-table.ts";
import type { Place } from "./place.ts";

/** How long the end of a claim waits for calls that were given up and do not end. */
const CALLS_MS_MAX = 5000;

/** A claim that is held. */
export interface HeldClaim {
  readonly key: ClaimKey;
  /** Variables that its execs get. */
  readonly env: Readonly<Record<string, string>>;
  readonly place: Place;
  readonly execs: ExecTable;
  /** The others. */
  readonly calls: ClaimCalls;
  /** Aborted when the claim ends. */
  readonly ending: AbortSignal;
}

/** How claims are held. */
export interface ClaimHolderOptions {
  readonly slots: number;
  /**
   * Makes the place of a claim: its repository has been cloned when it resolves. Nothing is left of it
   * when it rejects.
   *
   * @param signal given up when it aborts
   */
  openPlace(order: ClaimOrder, signal: AbortSignal): Promise<Place>;
  readonly log: Log;
  readonly clock?: Clock;
  /** Called when a claim that was held has ended. */
  onEnded?(key: ClaimKey): void;
}

interface Live {
  readonly order: ClaimOrder;
  readonly abort: AbortController;
  /** Resolves when nothing of it is left. */
  readonly ended: PromiseWithResolvers<void>;
  held: HeldClaim | null;
  end: Promise<number> | null;
}

/** Holds claims. */
export class ClaimHolder {
  readonly table: ClaimTable;
  readonly #options: ClaimHolderOptions;
  readonly #clock: Clock;
  /** By task and epoch. */
  readonly #live = new Map<string, Live>();
  #isReattaching = false;
  #isRenewed = false;
  #expiry: Timer | null = null;
  #emptied: (() => void)[] = [];

  constructor(options: ClaimHolderOptions) {
    this.table = new ClaimTable(options.slots);
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /**
   * Makes a claim.
   *
   * @param signal aborted when the caller gives it up: nothing is held then
   * @throws CprgError as the table of PROTOCOL.md section 8 says
   */
  async claim(request: ClaimRequest, signal: AbortSignal): Promise<HeldClaim> {
    this.#checkAttached();
    const order = parseClaim(request);
    const { superseded } = this.table.begin(order.key, order.ttlMs);
    // From here on it can be ended, also while it waits for the one before.
    const live = this.#track(order);
    const giveUp = (): void => void this.#end(order.key, "user");
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp);
    try {
      if (superseded !== null) await this.#end(superseded, "stale_epoch");
      return await this.#open(live);
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  /**
   * The claim that a call belongs to.
   *
   * @param key null where the caller names none
   * @throws CprgError as {@link ClaimTable.find}; `unavailable` REATTACHING
   */
  use(key: ClaimKey | null): HeldClaim {
    this.#checkAttached();
    const found = this.#live.get(nameOf(this.table.find(key)))?.held;
    assert(found, "a held claim has its parts");
    return found;
  }

  /**
   * Ends a claim; resolves when every process of it is gone.
   *
   * @returns how many execs were still running
   */
  async release(key: ClaimKey | null): Promise<number> {
    this.#checkAttached();
    const found = this.table.findReleased(key);
    if (found === null) return 0;
    const isOpening = this.#live.get(nameOf(found))?.held === null;
    const killed = await this.#end(found, "user");
    // The claim that was being made is answered first, and that takes some promises yet.
    if (isOpening) await new Promise(setImmediate);
    return killed;
  }

  /** Takes no other claim; those there are go on. */
  drain(): readonly ClaimKey[] {
    this.table.drain();
    return this.table.all();
  }

  /** Ends some claims, or all; resolves when nothing of them is left. */
  async end(keys: readonly ClaimKey[], reason: Reason): Promise<void> {
    await Promise.all(keys.map((key) => this.#end(key, reason)));
  }

  /** Resolves when no claim takes a slot. */
  whenEmpty(): Promise<void> {
    if (this.table.isEmpty) return Promise.resolve();
    return new Promise((resolve) => this.#emptied.push(resolve));
  }

  /**
   * Whether heartbeats are answered: ttls count only where they are, and go on where they were and
   * are again. What is held when they begin to be counts as renewed then.
   */
  countTtls(isAnswered: boolean): void {
    if (isAnswered === this.#isRenewed) return;
    this.#isRenewed = isAnswered;
    for (const key of this.table.held()) this.table.renew(key, this.#clock.monotonicMs());
    this.#watch();
  }

  /** An answered heartbeat. @param sentMs when it was sent, by the clock's monotonic time */
  async heard(
    sentMs: number,
    answer: { readonly renewed: readonly ClaimKey[]; readonly dropped: readonly ClaimKey[] },
  ): Promise<void> {
    for (const key of answer.renewed) this.table.renew(key, sentMs);
    this.#watch();
    const dropped = answer.dropped.filter((key) => this.table.phaseOf(key) === "held");
    await this.end(dropped, "worker_lost");
  }

  /** From now on calls on claims are refused, until the control plane says which it keeps. */
  awaitReattach(): void {
    this.#isReattaching = true;
  }

  /** The control plane's verdicts: claims without `keep` are ended. Returns what it keeps. */
  async reattach(kept: readonly ClaimKey[]): Promise<readonly HeldClaim[]> {
    const names = new Set(kept.map(nameOf));
    const lost = this.table.all().filter((key) => !names.has(nameOf(key)));
    await this.end(lost, "worker_lost");
    const claims = this.heldClaims();
    // Whoever asks what runs is to hear of each start that came over the stream before.
    await Promise.all(claims.map(({ execs }) => execs.settled()));
    this.#isReattaching = false;
    return claims;
  }

  /** Everything that is held. */
  heldClaims(): readonly HeldClaim[] {
    return [...this.#live.values()].flatMap(({ held }) => (held === null ? [] : [held]));
  }

  #checkAttached(): void {
    if (!this.#isReattaching) return;
    throw new CprgError("unavailable", "worker.Reattach has not come yet", {
      reason: "REATTACHING",
    });
  }

  #track(order: ClaimOrder): Live {
    const live: Live = {
      order,
      abort: new AbortController(),
      ended: Promise.withResolvers<void>(),
      held: null,
      end: null,
    };
    this.#live.set(nameOf(order.key), live);
    return live;
  }

  async #open(live: Live): Promise<HeldClaim> {
    const { key, env } = live.order;
    if (this.table.phaseOf(key) !== "opening") {
      this.#forget(live);
      throw notOpened(live);
    }
    let place: Place;
    try {
      place = await this.#options.openPlace(live.order, live.abort.signal);
    } catch (error) {
      this.#forget(live);
      throw error;
    }
    if (!this.table.opened(key, this.#clock.monotonicMs())) {
      await place.release();
      this.#forget(live);
      throw notOpened(live);
    }
    const ending = live.abort.signal;
    live.held = { key, env, place, execs: new ExecTable(), calls: new ClaimCalls(ending), ending };
    this.#watch();
    return live.held;
  }

  #end(key: ClaimKey, reason: Reason): Promise<number> {
    this.table.ending(key);
    const live = this.#live.get(nameOf(key));
    if (live === undefined) return Promise.resolve(0);
    live.end ??= this.#endLive(live, reason);
    return live.end;
  }

  async #endLive(live: Live, reason: Reason): Promise<number> {
    const { held } = live;
    if (held === null) {
      live.abort.abort(new CprgError("aborted", `the claim was given up: ${reason}`));
      await live.ended.promise;
      return 0;
    }
    live.abort.abort(claimEnded(reason));
    const killed = await held.execs.killAll(reason === "shutdown" ? reason : "interrupted");
    await Promise.race([held.calls.settled(), sleep(CALLS_MS_MAX, undefined, { ref: false })]);
    try {
      await held.place.release();
    } catch (error) {
      this.#options.log.error("place of a claim not removed", { task: held.key.taskId, error });
    }
    this.#forget(live);
    this.#options.onEnded?.(held.key);
    return killed;
  }

  #forget(live: Live): void {
    this.#live.delete(nameOf(live.order.key));
    live.held = null;
    this.table.ended(live.order.key);
    live.ended.resolve();
    this.#watch();
    if (this.table.isEmpty) for (const resolve of this.#emptied.splice(0)) resolve();
  }

  /** Ends claims at their time. */
  #watch(): void {
    this.#expiry?.clear();
    this.#expiry = null;
    const atMs = this.table.nextExpiryMs;
    if (!this.#isRenewed || atMs === Number.POSITIVE_INFINITY) return;
    this.#expiry = startTimer(atMs - this.#clock.monotonicMs(), () => {
      const expired = this.table.expired(this.#clock.monotonicMs());
      for (const { taskId, epoch } of expired) {
        this.#options.log.warn("claim ended: not renewed for its ttl", { task: taskId, epoch });
      }
      void this.end(expired, "worker_lost");
      this.#watch();
    });
  }
}

/** Why a claim was not made: it was given up, or a higher epoch came while it waited. */
function notOpened({ abort }: Live): unknown {
  if (abort.signal.aborted) return abort.signal.reason;
  return new CprgError("aborted", "another claim of this task came meanwhile", {
    reason: "STALE_EPOCH",
  });
}

/** What calls of a claim that is over end with. */
function claimEnded(reason: Reason): CprgError {
  return new CprgError("failed_precondition", `the claim has ended: ${reason}`, {
    reason: "NOT_CLAIMED",
  });
}

function nameOf({ taskId, epoch }: ClaimKey): string {
  return `${taskId}:${epoch}`;
}
