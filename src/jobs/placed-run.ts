/**
 * One job on a claimed worker, recorded here. The worker is somebody else's host: it is given a bounded
 * time, and what it sends is bounded by the job's own limits.
 */

import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { EventData, EventDraft, OutputBytes } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import type { LimitHit, Outcome, Violation } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { WorkerClaim } from "../provider/placement.ts";
import { neverRan, notRecorded, outcomeError, setupReason } from "../record/failed-outcome.ts";
import type { TimedDraft } from "../store/contract.ts";
import type { StopSwitch } from "./stop-switch.ts";

/** What a worker may take beyond the job's own time, to build its sandbox and to remove it. */
export const PLACED_MARGIN_MS = 60_000;
/** Events of one job that are taken from a worker; our own sends fewer. */
export const PLACED_EVENTS_MAX = 100_000;

/** What one run works with. */
export interface PlacedRun {
  readonly spec: JobSpec;
  readonly claim: Pick<WorkerClaim, "runJob" | "gone" | "release">;
  /** Commits events of this job, in order. */
  append(drafts: readonly TimedDraft[]): Promise<unknown>;
  readonly stop: StopSwitch;
  readonly clock: Clock;
  /** Default: {@link PLACED_MARGIN_MS}. */
  readonly marginMs?: number;
}

/**
 * Runs a job to its end, or to that of its worker. A stop by its user ends it at once; one by the server
 * lets it go on for its grace.
 *
 * @returns how it ended; never rejects
 */
export async function runPlaced(run: PlacedRun): Promise<Outcome> {
  const { spec, stop, marginMs = PLACED_MARGIN_MS } = run;
  const abort = new AbortController();
  stop.listen(({ reason, graceMs }) => {
    const leftMs = reason === "user" ? 0 : graceMs;
    const timer = startTimer(leftMs, () => abort.abort());
    abort.signal.addEventListener("abort", () => timer.clear(), { once: true });
  });
  const late = startTimer(spec.limits.wall_seconds * 1000 + marginMs, () => abort.abort());
  let stuck: Timer | null = null;
  abort.signal.addEventListener("abort", () => {
    // A worker that does not even end what it is told to end loses the claim.
    stuck = startTimer(marginMs, () => void run.claim.release());
  });
  const events = new PlacedEvents(run);
  try {
    for await (const { draft } of run.claim.runJob(spec, { signal: abort.signal })) {
      await events.take(draft);
    }
    return events.outcome(stop);
  } catch (error) {
    return events.failed(error, stop);
  } finally {
    late.clear();
    // Timers of a grace end with it.
    abort.abort();
    (stuck as Timer | null)?.clear();
  }
}

/** The events of a job as they come, with what they say of its end. */
class PlacedEvents {
  readonly #run: PlacedRun;
  readonly #startedMs = performance.now();
  readonly #bytes = { stdout: 0, stderr: 0 };
  readonly #limitsHit: LimitHit[] = [];
  readonly #violations: Violation[] = [];
  #count = 0;
  #hasStarted = false;
  #finished: EventData["finished"] | null = null;
  #isUnrecorded = false;

  constructor(run: PlacedRun) {
    this.#run = run;
  }

  /** Records one. @throws CprgError `data_loss` for what no worker may send; what the store throws */
  async take(draft: EventDraft | OutputBytes): Promise<void> {
    this.#count += 1;
    if (this.#count > PLACED_EVENTS_MAX) throw tooMuch(`more than ${PLACED_EVENTS_MAX} events`);
    if ("bytes" in draft) this.#checkBytes(draft);
    else if (draft.kind === "started") this.#hasStarted = true;
    else if (draft.kind === "limit") this.#limitsHit.push(draft.data);
    else if (draft.kind === "violation") this.#violations.push(draft.data);
    else if (draft.kind === "finished") {
      this.#finished = draft.data;
      return;
    }
    try {
      // Its clock is the worker's, and nothing of a log is older than what comes before it.
      await this.#run.append([{ at: this.#run.clock.now(), draft }]);
    } catch (error) {
      this.#isUnrecorded = true;
      throw error;
    }
  }

  /** How it ended, as its worker says. */
  outcome({ request }: StopSwitch): Outcome {
    const end = this.#finished;
    if (end === null) return this.failed(tooMuch("no end"), { request });
    const { exit_code, signal, reason, duration_ms, killed, usage, error } = end;
    return {
      exitCode: exit_code,
      signal,
      reason: reason === "user" ? (request?.reason ?? "interrupted") : reason,
      limitsHit: this.#limitsHit,
      violations: this.#violations,
      usage,
      durationMs: duration_ms,
      killed,
      ...(error === undefined ? {} : { error }),
    };
  }

  /** How it ended when its worker did not say. */
  failed(error: unknown, { request }: Pick<StopSwitch, "request">): Outcome {
    const said = outcomeError(error);
    if (this.#isUnrecorded) return notRecorded(this.#cut("runner_error"), error);
    if (request !== null) return this.#cut(request.reason);
    const lost = lossOf(error, this.#run.claim.gone);
    if (lost !== null) return { ...this.#cut(lost), error: said };
    if (!this.#hasStarted && this.#count === 0) return neverRan(setupReason(error), said);
    return { ...this.#cut("runner_error"), error: said };
  }

  /** Nothing of it runs any more, and what it did until then is known. */
  #cut(reason: Reason): Outcome {
    return {
      ...neverRan(reason),
      signal: this.#hasStarted ? "SIGKILL" : null,
      limitsHit: this.#limitsHit,
      violations: this.#violations,
      durationMs: this.#hasStarted ? performance.now() - this.#startedMs : 0,
    };
  }

  #checkBytes({ kind, bytes }: OutputBytes): void {
    this.#bytes[kind] += bytes.length;
    const most = this.#run.spec.limits.output_kb * 1024;
    if (this.#bytes[kind] > most) throw tooMuch(`more than ${most} bytes of ${kind}`);
  }
}

/** What ends a claim, as whoever uses it hears of it. */
const CLAIM_ENDS: readonly string[] = ["NOT_CLAIMED", "STALE_EPOCH"];

/** Why it ended with its claim; null when the claim had nothing to do with it. */
function lossOf(thrown: unknown, { aborted, reason }: AbortSignal): Reason | null {
  if (aborted && CprgError.from(reason).reason !== "WORKER_LOST") return "interrupted";
  const error = CprgError.from(thrown);
  const isLost = aborted || ["unavailable", "canceled"].includes(error.code);
  return isLost || CLAIM_ENDS.includes(error.reason ?? "") ? "worker_lost" : null;
}

function tooMuch(what: string): CprgError {
  return new CprgError("data_loss", `Cannot take what the worker sent: ${what}`, {
    reason: "BAD_EVENT",
  });
}
