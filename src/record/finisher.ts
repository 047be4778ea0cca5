/** Writes the terminal state of a run, and tries again for as long as storing fails. */

import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import type { Log, LogFields } from "../core/log.ts";

/** Waits between attempts, in milliseconds; the last repeats until the server stops. */
export const FINISH_RETRY_MS: readonly number[] = [50, 200, 1000, 3000, 5000, 10_000, 10_000];

/** What a finisher works with. */
export interface FinisherOptions {
  readonly log: Log;
  /** What the log says of the run whose end is stored. */
  readonly fields: LogFields;
  /** Aborted when the server stops: then the listed waits have to be enough. */
  readonly stopping: AbortSignal;
  /** Tests give short ones. */
  readonly retryMs?: readonly number[];
}

/**
 * Stores an end. What could not be stored stays with the caller's slot, which bounds how much waits.
 *
 * @param finish commits it; called again after a failure
 * @returns what the commit returned
 * @throws the last failure, when the server stops or the store is gone; the next start of the server
 *   then ends the run as `interrupted`
 */
export async function storeEnd<T>(finish: () => Promise<T>, options: FinisherOptions): Promise<T> {
  const { log, fields, stopping, retryMs: waits = FINISH_RETRY_MS } = options;
  for (let attempt = 0; ; attempt++) {
    try {
      return await finish();
    } catch (error) {
      const listedMs = waits[attempt];
      if (isStoreGone(error) || (listedMs === undefined && stopping.aborted)) throw error;
      const waitMs = listedMs ?? waits.at(-1) ?? 0;
      const more = { attempt: attempt + 1, retry_ms: waitMs, error };
      log.warn("end not stored, trying again", { ...fields, ...more });
      if (listedMs === undefined) await sleepUntil(waitMs, stopping);
      else await sleep(waitMs);
    }
  }
}

/** No attempt can succeed any more. */
function isStoreGone(error: unknown): boolean {
  const reason = CprgError.is(error) ? error.reason : undefined;
  return reason === "STORE_DIED" || reason === "STORE_CLOSED";
}

/** Sleeps, but not longer than until the signal. */
async function sleepUntil(waitMs: number, signal: AbortSignal): Promise<void> {
  await sleep(waitMs, undefined, { signal }).catch(() => undefined);
}
