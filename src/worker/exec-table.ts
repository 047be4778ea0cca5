/** The execs of one claim: those that run, and those whose end nobody has taken yet. */

import { CprgError } from "../core/errors.ts";
import type { Reason } from "../core/reasons.ts";
import type { RunningExec } from "./running-exec.ts";

/** Execs of one claim that are remembered (PROTOCOL.md section 9, "Programs"). */
export const EXECS_MAX = 4096;
/**
 * Bytes of items that were all sent and are kept for a stream that is lost before they arrive: those
 * of the oldest execs are forgotten, so that what is kept stays bounded.
 */
export const SENT_BYTES_MAX = 4 * 1024 * 1024;

/** Execs by id. */
export class ExecTable {
  /** `null` while it starts. */
  readonly #execs = new Map<string, RunningExec | null>();
  readonly #starting = new Set<Promise<unknown>>();
  /** Whose exit was sent, oldest first. */
  readonly #sent = new Set<RunningExec>();
  #isClosed = false;

  /** Those that were started and are remembered. */
  get all(): readonly RunningExec[] {
    return [...this.#execs.values()].filter((exec) => exec !== null);
  }

  /**
   * Takes an id and starts what is to have it.
   *
   * @throws CprgError `already_exists`; `resource_exhausted` when too many run; what `start` throws
   */
  async start(id: string, start: () => Promise<RunningExec>): Promise<RunningExec> {
    this.#reserve(id);
    const started = start();
    this.#starting.add(started);
    try {
      const exec = await started;
      if (this.#isClosed) {
        await exec.kill("user");
        throw claimGone();
      }
      this.#execs.set(id, exec);
      return exec;
    } catch (error) {
      this.#execs.delete(id);
      throw error;
    } finally {
      this.#starting.delete(started);
    }
  }

  /** Resolves when each start that was under way has become an exec, or has failed. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#starting);
  }

  /** @throws CprgError `not_found` */
  find(id: string): RunningExec {
    const exec = this.#execs.get(id);
    if (exec != null) return exec;
    throw new CprgError("not_found", `No exec ${JSON.stringify(id.slice(0, 128))} in this claim`);
  }

  /** All items of an exec that has ended were sent. @param isKept for whoever attaches again */
  sent(exec: RunningExec, { isKept }: { readonly isKept: boolean }): void {
    if (!isKept) exec.log.discard();
    this.#sent.add(exec);
    let bytes = 0;
    for (const { log } of this.#sent) bytes += log.keptBytes;
    for (const { log } of this.#sent) {
      if (bytes <= SENT_BYTES_MAX) break;
      bytes -= log.keptBytes;
      log.discard();
    }
  }

  /** Ends all of them; returns how many were running. Nothing starts any more. */
  async killAll(reason: Reason): Promise<number> {
    this.#isClosed = true;
    const execs = this.all;
    const running = execs.filter((exec) => !exec.log.isEnded).length;
    await Promise.all(execs.map((exec) => exec.end(reason)));
    return running;
  }

  #reserve(id: string): void {
    if (this.#isClosed) throw claimGone();
    if (this.#execs.has(id)) {
      throw new CprgError("already_exists", `Exec ${JSON.stringify(id)} is there already`);
    }
    if (this.#execs.size >= EXECS_MAX) {
      const oldest = [...this.#execs].find(([, exec]) => exec !== null && this.#isTaken(exec));
      if (oldest === undefined) {
        throw new CprgError("resource_exhausted", `Cannot start: ${EXECS_MAX} execs in this claim`);
      }
      const [oldestId, exec] = oldest;
      this.#execs.delete(oldestId);
      if (exec !== null) this.#sent.delete(exec);
    }
    this.#execs.set(id, null);
  }

  #isTaken(exec: RunningExec): boolean {
    return exec.log.isTaken || this.#sent.has(exec);
  }
}

function claimGone(): CprgError {
  return new CprgError("failed_precondition", "the claim has ended", { reason: "NOT_CLAIMED" });
}
