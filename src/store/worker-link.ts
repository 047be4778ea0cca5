/**
 * The client's end of the Worker: one batch is outstanding, what arrives meanwhile waits for the
 * next. A Worker that dies fails everything that waits and everything that comes.
 */

import { assert, CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import {
  BATCH_BYTES_MAX,
  BATCH_REQUESTS_MAX,
  type FromWorker,
  type StoreOp,
  type StoreOps,
  type StoreRequest,
  type StoreResult,
  type ToWorker,
  WAITING_BYTES_MAX,
  WAITING_REQUESTS_MAX,
} from "./protocol.ts";
import { fromWire } from "./wire-error.ts";

/** Rough sizes of a call; what is small needs none. */
export interface CallSize {
  /** Of the input, which is held until the call is answered. */
  readonly inputBytes?: number;
  /** Of the largest answer, which counts against the batch that brings it. */
  readonly answerBytes?: number;
  /** Buffers in the input that go to the Worker instead of a copy of them. */
  readonly transfer?: readonly ArrayBuffer[];
}

interface Waiting {
  readonly request: StoreRequest;
  readonly inputBytes: number;
  /** What it adds to a batch. */
  readonly batchBytes: number;
  readonly transfer: readonly ArrayBuffer[];
  readonly settle: PromiseWithResolvers<unknown>;
}

/** A request/response connection to one store Worker. */
export class WorkerLink {
  readonly #worker: Worker;
  readonly #log: Log;
  readonly #whenDiskFull: (() => void)[] = [];
  readonly #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #outstanding: readonly Waiting[] = [];
  #isFlushScheduled = false;
  /** Settles `open` or `close`, the two steps that are no batch. */
  #step: PromiseWithResolvers<void> | null = null;
  #closing: Promise<void> | null = null;
  #isIdle: PromiseWithResolvers<void> | null = null;
  #isStopped = false;
  #failure: CprgError | null = null;
  readonly #failed = Promise.withResolvers<CprgError>();

  constructor(worker: Worker, log: Log) {
    this.#worker = worker;
    this.#log = log;
    worker.addEventListener("message", (event: MessageEvent<FromWorker>) => this.#take(event.data));
    worker.addEventListener("messageerror", () => this.fail("its answer cannot be read"));
    worker.addEventListener("error", (event) => this.fail(event.message));
    worker.addEventListener("close", () => this.fail("its thread ended"));
  }

  /** Resolves when the Worker died. */
  get failed(): Promise<CprgError> {
    return this.#failed.promise;
  }

  /** Has it called after each batch in which an answer says that the disk is full. */
  onDiskFull(listener: () => void): void {
    this.#whenDiskFull.push(listener);
  }

  /** @throws CprgError why the file cannot be opened; the Worker has ended then */
  async open(path: string): Promise<void> {
    try {
      await this.#runStep({ type: "open", path });
    } catch (error) {
      this.#stop();
      throw error;
    }
  }

  /**
   * Queues one operation.
   *
   * @throws CprgError what the operation failed with; `unavailable` when the store is closed or
   *   its Worker died; `resource_exhausted` when too much waits
   */
  call<K extends StoreOp>(
    op: K,
    input: StoreOps[K]["input"],
    { inputBytes = 0, answerBytes = 0, transfer = [] }: CallSize = {},
  ): Promise<StoreOps[K]["output"]> {
    const refusal = this.#refusal(inputBytes);
    if (refusal !== null) return Promise.reject(refusal);
    const settle = Promise.withResolvers<unknown>();
    const request = { op, input } as StoreRequest;
    const batchBytes = Math.max(inputBytes, answerBytes);
    this.#waiting.push({ request, inputBytes, batchBytes, transfer, settle });
    this.#waitingBytes += inputBytes;
    this.#schedule();
    return settle.promise as Promise<StoreOps[K]["output"]>;
  }

  /** Waits for everything that was asked, then closes the file and ends the Worker. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#waiting.length > 0 || this.#outstanding.length > 0) {
      this.#isIdle = Promise.withResolvers<void>();
      await this.#isIdle.promise;
    }
    if (this.#failure !== null) return;
    await this.#runStep({ type: "close" });
    this.#stop();
  }

  #refusal(inputBytes: number): CprgError | null {
    if (this.#failure !== null) return this.#failure;
    if (this.#closing !== null) {
      return new CprgError("unavailable", "Cannot use the store: it is closed", {
        reason: "STORE_CLOSED",
        retryable: false,
      });
    }
    const isFull =
      this.#waiting.length >= WAITING_REQUESTS_MAX ||
      (this.#waiting.length > 0 && this.#waitingBytes + inputBytes > WAITING_BYTES_MAX);
    if (!isFull) return null;
    return new CprgError("resource_exhausted", "Cannot use the store: too many requests wait", {
      reason: "STORE_OVERLOADED",
      retryable: true,
    });
  }

  /** A microtask later, so that calls made in one go share a batch. */
  #schedule(): void {
    if (this.#isFlushScheduled || this.#outstanding.length > 0) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() => {
      this.#isFlushScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#outstanding.length > 0 || this.#waiting.length === 0 || this.#isStopped) return;
    let count = 0;
    let bytes = 0;
    for (const waiting of this.#waiting) {
      if (count > 0 && bytes + waiting.batchBytes > BATCH_BYTES_MAX) break;
      bytes += waiting.batchBytes;
      count += 1;
      this.#waitingBytes -= waiting.inputBytes;
      if (count === BATCH_REQUESTS_MAX) break;
    }
    this.#outstanding = this.#waiting.splice(0, count);
    try {
      const message: ToWorker = {
        type: "batch",
        requests: this.#outstanding.map(({ request }) => request),
        inputBytes: this.#outstanding.reduce((sum, { inputBytes }) => sum + inputBytes, 0),
      };
      this.#post(
        message,
        this.#outstanding.flatMap(({ transfer }) => transfer),
      );
    } catch (error) {
      // An input that structured clone refuses is a bug of one caller; it cannot be told apart.
      this.#settle(this.#outstanding.map(() => ({ error: cloneFailure(error) })));
    }
  }

  #post(message: ToWorker, transfer: ArrayBuffer[] = []): void {
    this.#worker.postMessage(message, transfer);
  }

  #runStep(message: ToWorker): Promise<void> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    this.#step = Promise.withResolvers<void>();
    this.#post(message);
    return this.#step.promise;
  }

  #take(message: FromWorker): void {
    switch (message.type) {
      case "results":
        this.#settle(message.results);
        return;
      case "refused":
        this.#step?.reject(fromWire(message.error));
        break;
      case "opened":
      case "closed":
        this.#step?.resolve();
        break;
    }
    this.#step = null;
  }

  #settle(results: readonly StoreResult[]): void {
    const answered = this.#outstanding;
    this.#outstanding = [];
    assert(answered.length === results.length, "the store answered another number of requests");
    for (const [index, { settle }] of answered.entries()) {
      const result = results[index];
      if (result === undefined) continue;
      if ("error" in result) settle.reject(fromWire(result.error));
      else settle.resolve(result.output);
    }
    if (this.#waiting.length > 0) this.#schedule();
    else this.#isIdle?.resolve();
    const isFull = results.some((it) => "error" in it && it.error.options.reason === "DISK_FULL");
    if (isFull) for (const listener of this.#whenDiskFull) listener();
  }

  /** Gives the Worker up: ends it, and fails everything that waits and everything to come. */
  fail(detail: string): void {
    if (this.#isStopped) return;
    this.#failure = new CprgError("unavailable", "Cannot use the store: its worker died", {
      reason: "STORE_DIED",
      hint: "Restart the server; what was acknowledged is on disk",
      retryable: false,
      cause: new Error(detail),
    });
    this.#log.error("The store's worker died", { detail });
    this.#stop();
    const lost = [...this.#outstanding, ...this.#waiting.splice(0)];
    this.#outstanding = [];
    this.#waitingBytes = 0;
    for (const { settle } of lost) settle.reject(this.#failure);
    this.#step?.reject(this.#failure);
    this.#step = null;
    this.#isIdle?.resolve();
    this.#failed.resolve(this.#failure);
  }

  #stop(): void {
    this.#isStopped = true;
    this.#worker.terminate();
  }
}

function cloneFailure(error: unknown) {
  const cause = error instanceof Error ? error.message : String(error);
  const options = { reason: "STORE_INPUT", retryable: false };
  return { code: "internal", message: `Cannot send to the store: ${cause}`, options } as const;
}
