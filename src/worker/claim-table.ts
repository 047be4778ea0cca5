/**
 * Which claims a worker holds, and what is refused: the table of proto/PROTOCOL.md section 8 as a
 * state machine without clock, I/O or promises. One claim goes `opening`, `held`, `ending`; a claim
 * of the same task with a higher epoch waits behind it and opens when it has ended.
 */

import { assert, CprgError, invalid } from "../core/errors.ts";

/** One attempt of one task. */
export interface ClaimKey {
  readonly taskId: string;
  readonly epoch: number;
}

/** How far a claim is. Only a held one serves calls. */
export type ClaimPhase = "opening" | "held" | "ending";

/** What `begin` decided. */
export interface Begun {
  /** The claim of the same task that has to end first, or null when this one opens at once. */
  readonly superseded: ClaimKey | null;
}

interface Entry {
  epoch: number;
  phase: ClaimPhase;
  ttlMs: number;
  /** When it was last renewed; it counts once it is held. */
  renewedMs: number;
  next: { readonly epoch: number; readonly ttlMs: number } | null;
}

const TASK_ID = /^[A-Za-z0-9._-]{1,128}$/;

/** @throws CprgError `invalid_argument` for what section 8 does not allow */
export function checkClaimKey({ taskId, epoch }: ClaimKey): void {
  if (!TASK_ID.test(taskId)) {
    throw invalid("task_id", "Cannot claim: task_id must be 1 to 128 of A-Z a-z 0-9 . _ -");
  }
  if (!Number.isSafeInteger(epoch) || epoch < 1) {
    throw invalid("epoch", "Cannot claim: epoch must be from 1 to 2^53 - 1");
  }
}

/** The claims of one worker. */
export class ClaimTable {
  readonly #slots: number;
  /** By task, oldest first. */
  readonly #entries = new Map<string, Entry>();
  #isDraining = false;
  #staleRefused = 0;

  constructor(slots: number) {
    assert(Number.isInteger(slots) && slots >= 1, "slots from 1");
    this.#slots = slots;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** No slot is taken. */
  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  /** Calls that were refused because of their epoch. */
  get staleRefused(): number {
    return this.#staleRefused;
  }

  /** Held claims, oldest first. */
  held(): readonly ClaimKey[] {
    return this.#keys((entry) => entry.phase === "held");
  }

  /** Every claim that takes a slot, oldest first. */
  all(): readonly ClaimKey[] {
    return this.#keys(() => true);
  }

  /**
   * Reserves a slot.
   *
   * @param ttlMs 0: silence does not end it
   * @throws CprgError `already_exists` ALREADY_CLAIMED, `unavailable` DRAINING, `invalid_argument`
   */
  begin(key: ClaimKey, ttlMs: number): Begun {
    checkClaimKey(key);
    if (this.#isDraining) {
      throw refusal("unavailable", "DRAINING", "the worker finishes and takes no other claim");
    }
    const { taskId, epoch } = key;
    const entry = this.#entries.get(taskId);
    if (entry !== undefined) {
      const newest = entry.next?.epoch ?? entry.epoch;
      if (epoch <= newest) {
        throw refusal("already_exists", "ALREADY_CLAIMED", `${taskId} is held, epoch ${newest}`);
      }
      const superseded = { taskId, epoch: entry.epoch };
      entry.phase = "ending";
      entry.next = { epoch, ttlMs };
      return { superseded };
    }
    if (this.#entries.size >= this.#slots) {
      throw refusal("already_exists", "ALREADY_CLAIMED", `all ${this.#slots} slots are taken`);
    }
    this.#entries.set(taskId, { epoch, phase: "opening", ttlMs, renewedMs: 0, next: null });
    return { superseded: null };
  }

  /** Its phase, or null when it takes no slot; `waiting` behind the one that has to end first. */
  phaseOf({ taskId, epoch }: ClaimKey): ClaimPhase | "waiting" | null {
    const entry = this.#entries.get(taskId);
    if (entry?.epoch === epoch) return entry.phase;
    return entry?.next?.epoch === epoch ? "waiting" : null;
  }

  /** It can be used now. False: it is to be given up, because it was ended meanwhile. */
  opened(key: ClaimKey, nowMs: number): boolean {
    const entry = this.#entries.get(key.taskId);
    if (entry?.epoch !== key.epoch || entry.phase !== "opening") return false;
    entry.phase = "held";
    entry.renewedMs = nowMs;
    return true;
  }

  /** It serves nothing any more, and keeps its slot until `ended`. */
  ending(key: ClaimKey): void {
    const entry = this.#entries.get(key.taskId);
    if (entry === undefined) return;
    if (entry.epoch === key.epoch) entry.phase = "ending";
    else if (entry.next?.epoch === key.epoch) entry.next = null;
  }

  /** Nothing of it is left: its slot is free, or the one that waited opens. */
  ended(key: ClaimKey): void {
    const entry = this.#entries.get(key.taskId);
    if (entry?.epoch !== key.epoch) return;
    this.#entries.delete(key.taskId);
    const { next } = entry;
    if (next === null) return;
    const { epoch, ttlMs } = next;
    this.#entries.set(key.taskId, { epoch, phase: "opening", ttlMs, renewedMs: 0, next: null });
  }

  /**
   * The claim that a call belongs to.
   *
   * @param key null: the only one that is held, for peers that name none
   * @throws CprgError `failed_precondition` NOT_CLAIMED, `aborted` STALE_EPOCH
   */
  find(key: ClaimKey | null): ClaimKey {
    if (key === null) {
      const [only, second] = this.held();
      if (only !== undefined && second === undefined) return only;
      throw notClaimed(only === undefined ? "nothing is claimed" : "several claims are held");
    }
    const { taskId, epoch } = key;
    const entry = this.#entries.get(taskId);
    if (entry === undefined) throw notClaimed("this task is not held");
    if (entry.next?.epoch === epoch) throw notClaimed("the claim is not made yet");
    if (entry.epoch !== epoch) throw this.#stale(key, entry.epoch);
    if (entry.phase !== "held") throw notClaimed(`the claim is ${entry.phase}`);
    return { taskId, epoch };
  }

  /**
   * The claim that a release means.
   *
   * @param key null: the only one that is held, for peers that name none
   * @returns null when it is not held, which is as good as released
   * @throws CprgError `aborted` STALE_EPOCH when a higher epoch is held; without a key as {@link find}
   */
  findReleased(key: ClaimKey | null): ClaimKey | null {
    if (key === null) return this.find(null);
    const { taskId, epoch } = key;
    const entry = this.#entries.get(taskId);
    if (entry === undefined) return null;
    if (epoch === entry.epoch || epoch === entry.next?.epoch) return { taskId, epoch };
    const newest = entry.next?.epoch ?? entry.epoch;
    if (epoch < newest) throw this.#stale(key, newest);
    return null;
  }

  /** Takes no other claim from now on. */
  drain(): void {
    this.#isDraining = true;
  }

  /** The control plane stood by this claim at a time. Time does not go back. */
  renew({ taskId, epoch }: ClaimKey, atMs: number): void {
    const entry = this.#entries.get(taskId);
    if (entry?.epoch === epoch) entry.renewedMs = Math.max(entry.renewedMs, atMs);
  }

  /** Held claims that nobody has renewed for their ttl. */
  expired(nowMs: number): readonly ClaimKey[] {
    return this.#keys((entry) => expiryOf(entry) <= nowMs);
  }

  /** When the first held claim expires unless it is renewed; Infinity: none does. */
  get nextExpiryMs(): number {
    return Math.min(Number.POSITIVE_INFINITY, ...[...this.#entries.values()].map(expiryOf));
  }

  #keys(isWanted: (entry: Entry) => boolean): readonly ClaimKey[] {
    return [...this.#entries].flatMap(([taskId, entry]) =>
      isWanted(entry) ? [{ taskId, epoch: entry.epoch }] : [],
    );
  }

  #stale({ taskId, epoch }: ClaimKey, held: number): CprgError {
    this.#staleRefused += 1;
    return refusal(
      "aborted",
      "STALE_EPOCH",
      `claim ${epoch} of task ${JSON.stringify(taskId.slice(0, 128))} is not held; epoch ${held} is`,
    );
  }
}

function expiryOf({ phase, ttlMs, renewedMs }: Entry): number {
  return phase === "held" && ttlMs > 0 ? renewedMs + ttlMs : Number.POSITIVE_INFINITY;
}

function notClaimed(why: string): CprgError {
  return refusal("failed_precondition", "NOT_CLAIMED", why);
}

function refusal(
  code: "unavailable" | "already_exists" | "aborted" | "failed_precondition",
  reason: string,
  message: string,
): CprgError {
  return new CprgError(code, message, { reason });
}
