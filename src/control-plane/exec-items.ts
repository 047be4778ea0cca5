/**
 * The items of one exec, from its first to its last, over as many streams as that takes. What a lost
 * stream leaves open is decided here: an exec that has started is attached to, one that has not is
 * started under the same id, which its worker takes once.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Mux, StreamCall } from "../bridge/contract.ts";
import { EXEC_ATTACH, EXEC_START } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import type { ExecItem, ExecStartRequest } from "../gen/messages.ts";
import { type ClaimLink, isUnavailable } from "./claim-link.ts";

/** Tries to start or attach while the worker gives up a start that was cut off. */
const TRIES_MAX = 40;
const TRY_PAUSE_MS = 50;

/** Reads one exec; one reader. */
export class ExecItems {
  readonly #link: ClaimLink;
  readonly #request: Partial<ExecStartRequest> & Pick<ExecStartRequest, "execId">;
  #call: StreamCall<ExecItem> | null = null;
  #reader: AsyncIterator<ExecItem> | null = null;
  /** `seq` of the first item that was not taken. */
  #nextSeq = 1;
  /** How the next stream is asked; null after a cut: as what the worker says that it has. */
  #mode: "start" | "attach" | null = "start";
  #wasCut = false;
  #tries = 0;
  #mux: Mux | null = null;
  #cancelReason: string | null = null;

  constructor(link: ClaimLink, request: Partial<ExecStartRequest> & { readonly execId: string }) {
    this.#link = link;
    this.#request = request;
  }

  /**
   * The next item; undefined at the end. In the grace of a lost stream it waits.
   *
   * @throws CprgError what the worker ended the call with; `unavailable` WORKER_LOST
   */
  async next(): Promise<ExecItem | undefined> {
    for (;;) {
      this.#reader ??= await this.#open();
      try {
        const { done, value } = await this.#reader.next();
        if (done) return undefined;
        this.#check(value);
        this.#nextSeq += 1;
        this.#tries = 0;
        return value;
      } catch (error) {
        this.#reader = null;
        if (!(await this.#isToRepeat(error))) throw error;
      }
    }
  }

  /** Ends it: the worker kills it, and then ends its items with `canceled`. In the grace, at its end. */
  cancel(reason: string): void {
    this.#cancelReason ??= reason;
    this.#call?.cancel(reason);
  }

  /** Nobody reads on: kills it without waiting for that, also if it can be reached only later. */
  abandon(reason: string): void {
    this.cancel(reason);
    void this.#drain().catch(() => undefined);
  }

  async #drain(): Promise<void> {
    while ((await this.next()) !== undefined);
  }

  async #open(): Promise<AsyncIterator<ExecItem>> {
    const { claim } = this.#link;
    const { execId } = this.#request;
    const mux = await this.#link.attached();
    this.#mux = mux;
    this.#mode ??= this.#nextSeq > 1 || this.#link.hasExec(execId) ? "attach" : "start";
    if (this.#mode === "start" && this.#cancelReason !== null) {
      throw new CprgError("canceled", this.#cancelReason);
    }
    this.#call =
      this.#mode === "attach"
        ? mux.stream(EXEC_ATTACH, { claim, execId, nextSeq: this.#nextSeq })
        : mux.stream(EXEC_START, { ...this.#request, claim });
    if (this.#cancelReason !== null) this.#call.cancel(this.#cancelReason);
    return this.#call[Symbol.asyncIterator]();
  }

  /** Items of our own worker are numbered without a gap. */
  #check({ seq }: ExecItem): void {
    if (seq === 0 || seq === this.#nextSeq) return;
    throw new CprgError("data_loss", `item ${seq} came where ${this.#nextSeq} was to come`);
  }

  /** Whether the error is of the stream and not of the exec, or of a start that has yet to settle. */
  async #isToRepeat(error: unknown): Promise<boolean> {
    if (!CprgError.is(error)) return false;
    if (isUnavailable(error) && this.#mux?.hasEnded === true) {
      this.#wasCut = true;
      this.#mode = null;
      return true;
    }
    if (!this.#wasCut || this.#nextSeq > 1 || this.#tries >= TRIES_MAX) return false;
    if (error.code === "already_exists" && this.#mode === "start") this.#mode = "attach";
    else if (error.code === "not_found" && this.#mode === "attach") this.#mode = "start";
    else return false;
    this.#tries += 1;
    await sleep(TRY_PAUSE_MS);
    return true;
  }
}
