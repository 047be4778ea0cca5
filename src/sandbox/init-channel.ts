/**
 * The two connections to process 1 of a sandbox: requests go out on a socket, reports come in on a
 * pipe. Hands each report to whoever waits for its exec, and says when process 1 is gone.
 */

import { closeSync } from "node:fs";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError, type SetupFailure } from "../core/errors.ts";
import { decodeReport, type Report, SIZES } from "./layout.ts";
import type { Native } from "./native.ts";
import { errnoOf } from "./steps.ts";

/** Tries to send while process 1 is busy with earlier requests, and the pause between two. */
const SEND_TRIES_MAX = 2000;
const SEND_PAUSE_MS = 5;

/** Hears the reports of one exec; null when process 1 ends before the last of them. */
export type ReportListener = (report: Report | null) => void;

/** Both ends of the server. */
export class InitChannel {
  readonly #native: Native;
  readonly #controlFd: number;
  readonly #reportFd: number;
  readonly #listeners = new Map<number, ReportListener>();
  #isClosed = false;
  #readErrno = 0;
  /** Resolves when process 1 has let go of its pipe: it is dead or dying. */
  readonly ended: Promise<void>;

  constructor(
    native: Native,
    fds: { readonly control: number; readonly report: number },
    onSetup: ReportListener,
  ) {
    this.#native = native;
    this.#controlFd = fds.control;
    this.#reportFd = fds.report;
    this.#listeners.set(0, onSetup);
    // A pipe that cannot be read is as good as closed: the sandbox is then taken for dead.
    this.ended = this.#read()
      .catch((error: unknown) => {
        this.#readErrno = errnoOf(error);
      })
      .then(() => this.#endAll());
  }

  /** Why the pipe could not be read to its end; 0 when it was, or still is. */
  get readErrno(): number {
    return this.#readErrno;
  }

  /** From now on reports with this id go to the listener. */
  listen(id: number, listener: ReportListener): void {
    this.#listeners.set(id, listener);
  }

  /** Reports with this id are dropped. */
  forget(id: number): void {
    this.#listeners.delete(id);
  }

  /** Sends one request. @throws CprgError when process 1 is gone or does not take it */
  async send(message: Uint8Array, fds: readonly number[]): Promise<void> {
    for (let tries = 0; tries < SEND_TRIES_MAX; tries += 1) {
      if (this.trySend(message, fds)) return;
      await sleep(SEND_PAUSE_MS);
    }
    throw new CprgError("unavailable", "Cannot reach the sandbox: it takes no requests", {
      reason: "SANDBOX_STUCK",
    });
  }

  /** Sends one request if there is room now. @throws CprgError when process 1 is gone */
  trySend(message: Uint8Array, fds: readonly number[]): boolean {
    if (this.#isClosed) throw sandboxGone();
    try {
      return this.#native.send(this.#controlFd, message, fds);
    } catch (cause) {
      throw sandboxGone({ cause });
    }
  }

  /** The descriptors of the message that came with READY. */
  receiveFds(): readonly number[] {
    return this.#native.receiveFds(this.#controlFd) ?? [];
  }

  /** Closes the socket, which also makes process 1 exit; the pipe closes when it has. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closeSync(this.#controlFd);
  }

  #endAll(): void {
    const listeners = [...this.#listeners.values()];
    this.#listeners.clear();
    for (const listener of listeners) listener(null);
  }

  async #read(): Promise<void> {
    let pending = new Uint8Array(0);
    try {
      const reader = Bun.file(this.#reportFd).stream().getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        pending = this.#dispatch(pending.length === 0 ? value : concat(pending, value));
      }
    } finally {
      closeSync(this.#reportFd);
    }
  }

  /** Hands out whole records and returns the rest. */
  #dispatch(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = 0;
    for (; at + SIZES.report <= bytes.length; at += SIZES.report) {
      const report = decodeReport(view, at);
      this.#listeners.get(report.id)?.(report);
    }
    return bytes.subarray(at);
  }
}

function concat(
  left: Uint8Array<ArrayBuffer>,
  right: Uint8Array<ArrayBuffer>,
): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(left.length + right.length);
  joined.set(left);
  joined.set(right, left.length);
  return joined;
}

/** The reason of {@link sandboxGone}. */
export const SANDBOX_GONE = "SANDBOX_GONE";

/** Whether an error says that a sandbox is no more. */
export function isSandboxGone(error: unknown): error is CprgError {
  return CprgError.is(error) && error.reason === SANDBOX_GONE;
}

/** What could not be done where process 1 was gone before it was asked. */
const UNASKED: SetupFailure = {
  step: "request",
  index: 0,
  errno: constants.errno.EPIPE,
  errnoName: "EPIPE",
};

/**
 * The error of everything that is asked of a sandbox that is no more.
 *
 * @param isUnasked it was not even asked, so that nothing has run
 */
export function sandboxGone({
  cause,
  isUnasked = false,
}: {
  readonly cause?: unknown;
  readonly isUnasked?: boolean;
} = {}): CprgError {
  return new CprgError("unavailable", "Cannot use the sandbox: it has ended", {
    reason: SANDBOX_GONE,
    hint: "Its process 1 was killed, for memory or by somebody, or refused something: see dmesg and `cprg doctor`",
    retryable: false,
    ...(isUnasked ? { setup: UNASKED } : {}),
    ...(cause === undefined ? {} : { cause }),
  });
}
