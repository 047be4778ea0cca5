/**
 * Feeds one WebSocket with the events of a job or exec: history, then live, then close code 1000. The
 * client's pace holds back the feed; a client that takes nothing for too long is cut off, and others
 * do not notice either.
 */

/** Bytes that may wait for a client before the next event is taken from the feed. */
export const STREAM_BUFFER_BYTES_MAX = 1024 * 1024;
/** Longest that a client may take nothing while something waits for it. */
export const STREAM_STALL_MS = 60_000;

/** Messages a minute that a client may send, for nothing: some keep a connection alive with them. */
export const STREAM_MESSAGES_PER_MIN = 120;
const MINUTE_MS = 60_000;

/** RFC 6455 section 7.4.1. */
const CLOSE_NORMAL = 1000;
const CLOSE_GOING_AWAY = 1001;
const CLOSE_POLICY_VIOLATION = 1008;
const CLOSE_INTERNAL_ERROR = 1011;

/** A WebSocket, as far as a stream needs it. */
export interface StreamSocket {
  /** Bytes sent, -1 when they wait, 0 when they were dropped. */
  send(text: string): number;
  getBufferedAmount(): number;
  close(code: number, reason: string): void;
  /** Ends the connection at once. */
  terminate(): void;
}

/** What a stream sends and by which rules. */
export interface LogStreamOptions {
  subscribe(signal: AbortSignal): AsyncIterable<readonly { readonly line: string }[]>;
  /** Whether the log has ended, so that the stream ends by itself. */
  hasEnded(): Promise<boolean>;
  /** Called once, when the stream failed. */
  onFailure(error: unknown): void;
  /** Called once, when the socket is closed. */
  onClosed(): void;
  readonly stallMs?: number;
  readonly bufferBytesMax?: number;
}

/** One stream; the listener tells it what happens to its socket. */
export class LogStream {
  readonly #options: LogStreamOptions;
  readonly #closed = new AbortController();
  readonly #gone = Promise.withResolvers<void>();
  #drained: (() => void) | null = null;
  #isRefused = false;
  #messages = 0;
  #messagesSinceMs = 0;

  constructor(options: LogStreamOptions) {
    this.#options = options;
  }

  /** Resolves when the socket is closed, or is to be. */
  get gone(): Promise<void> {
    return this.#gone.promise;
  }

  /** Ends the stream because its client may have it no more. */
  refuse(): void {
    this.#isRefused = true;
    this.closed();
  }

  /** The socket is open: sends until the log has ended or the socket is closed. */
  async opened(socket: StreamSocket): Promise<void> {
    try {
      await this.#pump(socket);
    } catch (error) {
      this.#options.onFailure(error);
      socket.close(CLOSE_INTERNAL_ERROR, "the server failed");
    }
  }

  /** The client sent a message, which nobody reads; one that floods is cut off. */
  heard(socket: Pick<StreamSocket, "close" | "terminate">): void {
    const nowMs = performance.now();
    if (nowMs - this.#messagesSinceMs >= MINUTE_MS) {
      this.#messagesSinceMs = nowMs;
      this.#messages = 0;
    }
    this.#messages += 1;
    if (this.#messages <= STREAM_MESSAGES_PER_MIN) return;
    const isTold = this.#closed.signal.aborted;
    this.closed();
    if (isTold) socket.terminate();
    else socket.close(CLOSE_POLICY_VIOLATION, "a stream takes no messages");
  }

  /** The socket took bytes that waited. */
  drained(): void {
    this.#drained?.();
  }

  /** The socket is closed, or is to be: nothing is read for it any more. */
  closed(): void {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    this.#drained?.();
    this.#options.onClosed();
    this.#gone.resolve();
  }

  /**
   * Ends the stream of a log that goes on; one of a log that has ended sends the rest first.
   * Resolves when it is closed.
   */
  async runOut(): Promise<void> {
    const hasEnded = await this.#options.hasEnded().catch(() => false);
    if (!hasEnded) this.closed();
    await this.#gone.promise;
  }

  async #pump(socket: StreamSocket): Promise<void> {
    const bufferBytesMax = this.#options.bufferBytesMax ?? STREAM_BUFFER_BYTES_MAX;
    const { signal } = this.#closed;
    for await (const page of this.#options.subscribe(signal)) {
      for (const { line } of page) {
        if (!(await this.#room(socket, bufferBytesMax))) return socket.terminate();
        // A dropped event would be a gap: the client has to come back from its last seq.
        if (socket.send(line) === 0) return socket.terminate();
      }
    }
    if (this.#isRefused) return socket.close(CLOSE_POLICY_VIOLATION, "key revoked");
    if (signal.aborted) return socket.close(CLOSE_GOING_AWAY, "stopped");
    if (!(await this.#room(socket, 0))) return socket.terminate();
    socket.close(CLOSE_NORMAL, "finished");
  }

  /** Whether at most so many bytes wait, now or soon; false when the client stalls or is gone. */
  async #room(socket: StreamSocket, bytesMax: number): Promise<boolean> {
    let waiting = socket.getBufferedAmount();
    while (waiting > bytesMax && !this.#closed.signal.aborted) {
      const hasDrained = await this.#drain();
      const before = waiting;
      waiting = socket.getBufferedAmount();
      if (!hasDrained && waiting >= before) return false;
    }
    return !this.#closed.signal.aborted;
  }

  /** Waits for the socket to take bytes; false when the time of a stall passed first. */
  #drain(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => resolve(false), this.#options.stallMs ?? STREAM_STALL_MS);
    this.#drained = () => resolve(true);
    return promise.finally(() => {
      clearTimeout(timer);
      this.#drained = null;
    });
  }
}
