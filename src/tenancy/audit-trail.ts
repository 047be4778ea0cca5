/**
 * Writes the audit log: in order, many records in one commit, and never in the way of what it
 * records. What cannot be kept is counted, and the count is recorded.
 */

import { AUDIT_SUBJECT, type AuditRecord } from "../core/audit.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import type { Log } from "../core/log.ts";
import type { EventLog, TimedDraft } from "../store/contract.ts";

/** Records that may wait for the store. */
export const AUDIT_WAITING_MAX = 4096;
/** Records in one commit. */
const AUDIT_BATCH_MAX = 512;
/** How long refused requests are gathered into one record. */
export const REFUSALS_GATHER_MS = 10_000;

/** What a trail works with. */
export interface AuditOptions {
  readonly events: Pick<EventLog, "append">;
  readonly log: Log;
  readonly clock?: Pick<Clock, "now">;
  readonly waitingMax?: number;
}

/** The audit log, as those who write to it see it. */
export class AuditTrail {
  readonly #events: Pick<EventLog, "append">;
  readonly #log: Log;
  readonly #clock: Pick<Clock, "now">;
  readonly #waitingMax: number;
  readonly #waiting: TimedDraft[] = [];
  #lost = 0;
  #refused = 0;
  #gathering: ReturnType<typeof setTimeout> | null = null;
  #writing: Promise<void> | null = null;

  constructor({ events, log, clock, waitingMax }: AuditOptions) {
    this.#events = events;
    this.#log = log;
    this.#clock = clock ?? systemClock;
    this.#waitingMax = waitingMax ?? AUDIT_WAITING_MAX;
  }

  /** Records what happened just now. */
  record(record: AuditRecord): void {
    if (this.#waiting.length >= this.#waitingMax) {
      this.#lost += 1;
      return;
    }
    this.#waiting.push({ at: this.#clock.now(), draft: { kind: "audit", data: record } });
    this.#writing ??= this.#write();
  }

  /** Counts a request without a key that is known: strangers cannot make the log grow. */
  refused(): void {
    this.#refused += 1;
    if (this.#gathering !== null) return;
    this.#gathering = setTimeout(() => this.#recordRefused(), REFUSALS_GATHER_MS);
    this.#gathering.unref();
  }

  /** Resolves when everything so far was written, or given up. */
  async flush(): Promise<void> {
    this.#recordRefused();
    await this.#writing;
  }

  #recordRefused(): void {
    if (this.#gathering !== null) clearTimeout(this.#gathering);
    this.#gathering = null;
    const count = this.#refused;
    this.#refused = 0;
    if (count > 0) {
      this.record({ ...NOBODY, action: "auth.refuse", outcome: "refused", status: 401, count });
    }
  }

  async #write(): Promise<void> {
    // What is recorded in one go shares a commit.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, AUDIT_BATCH_MAX);
      const lost = this.#lost;
      try {
        await this.#events.append(AUDIT_SUBJECT, [...this.#lostDraft(), ...batch]);
        this.#lost -= lost;
      } catch (error) {
        this.#lost += batch.length;
        this.#log.error("audit records not stored", { count: batch.length, error });
      }
    }
    this.#writing = null;
  }

  #lostDraft(): TimedDraft[] {
    if (this.#lost === 0) return [];
    const data = { ...NOBODY, action: "audit.lost", outcome: "failed", count: this.#lost } as const;
    return [{ at: this.#clock.now(), draft: { kind: "audit", data } }];
  }
}

/** A record that is of no request. */
export const NOBODY = {
  key_id: null,
  tenant: null,
  object: null,
  status: null,
  request_id: null,
} as const;
