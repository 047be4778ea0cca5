/** A call that this side answers: from its first REQUEST until its handler and its one end are through. */

import { CprgError } from "../core/errors.ts";
import { type CallHost, frame, itemQueue } from "./call-host.ts";
import type {
  CallContext,
  Codec,
  MethodKind,
  PeerCapabilities,
  ServerStreamHandler,
  ServerStreamMethod,
  StreamContext,
} from "./contract.ts";
import { errorText } from "./error-text.ts";
import type { Served } from "./handlers.ts";
import type { ItemQueue } from "./item-queue.ts";
import { ITEM_BYTES_MAX } from "./limits.ts";
import { encodeItem, encodeUnary } from "./payload-bounds.ts";
import { SendCredit } from "./send-credit.ts";

/** One call of the peer. */
export class IncomingCall implements CallContext {
  readonly callId: string;
  readonly method: string;
  readonly kind: MethodKind;
  /** Of its REQUEST; items do not count. */
  readonly requestBytes: number;
  /** Of the items that it sends, where both sides list credit. */
  readonly credit: SendCredit | undefined;
  readonly #host: CallHost;
  readonly #controller = new AbortController();
  readonly #items: ItemQueue | undefined;
  #hasAllItems = false;

  constructor(host: CallHost, served: Served, request: { id: string; payload: Uint8Array }) {
    this.#host = host;
    this.callId = request.id;
    this.method = served.method.name;
    this.kind = served.method.kind;
    this.requestBytes = this.kind === "clientStream" ? 0 : request.payload.length;
    if (this.kind === "serverStream" && host.hasCredit()) {
      this.credit = new SendCredit(this.signal);
    }
    if (this.kind === "clientStream") {
      const giveUp = (error: CprgError): void => this.giveUp(error);
      this.#items = itemQueue(host, { id: request.id, upload: true, giveUp });
    }
  }

  get peer(): PeerCapabilities {
    return this.#host.peer;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether a further REQUEST with its id is an item. */
  get takesItems(): boolean {
    return this.#items !== undefined && !this.#hasAllItems;
  }

  /**
   * Gives the call up: the handler is told, and the error is the call's end once the handler has
   * ended. The first error stands.
   */
  giveUp(error: CprgError): void {
    this.#controller.abort(error);
    this.#items?.fail(error);
  }

  /** Takes an item, or the end of the items. A promise holds back the stream. */
  item(payload: Uint8Array): Promise<void> | undefined {
    if (payload.length === 0) {
      this.#hasAllItems = true;
      this.#items?.end();
      return undefined;
    }
    if (payload.length > ITEM_BYTES_MAX) {
      this.giveUp(new CprgError("invalid_argument", "an item is too large"));
    } else if (this.#items?.isBeyondCredit === true) {
      this.giveUp(new CprgError("resource_exhausted", "an item came without credit"));
    }
    return this.#items?.push(payload);
  }

  /** Runs the handler and answers. Never rejects. */
  async serve(served: Served, request: object | undefined): Promise<void> {
    try {
      const payload = await this.#run(served, request);
      this.signal.throwIfAborted();
      this.#host.post(frame("response", this.callId, { payload }));
    } catch (thrown) {
      const error = this.#endError(thrown);
      this.#items?.fail(error);
      this.#host.post(frame("error", this.callId, { error: errorText(error) }));
    }
    this.#items?.fail(new CprgError("canceled", "the call has been answered"));
  }

  /** Payload of the last RESPONSE. */
  async #run(served: Served, request: object | undefined): Promise<Uint8Array> {
    switch (served.method.kind) {
      case "unary": {
        const { method, handle } = served as Extract<Served, { method: { kind: "unary" } }>;
        return encodeUnary(method.response, await handle(request ?? {}, this));
      }
      case "clientStream": {
        const { method, handle } = served as Extract<Served, { method: { kind: "clientStream" } }>;
        const items = this.#decoded(method.request);
        return encodeUnary(method.response, await handle(items, this));
      }
      case "serverStream": {
        const { method, handle } = served as Extract<Served, { method: { kind: "serverStream" } }>;
        await this.#sendItems(method, handle, request ?? {});
        return new Uint8Array(0);
      }
      default:
        throw new CprgError("internal", "a notice has no answer");
    }
  }

  async *#decoded<T>(codec: Codec<T>): AsyncGenerator<T, void, undefined> {
    for (;;) {
      const payload = await this.#items?.next();
      if (payload === undefined) return;
      yield codec.decode(payload);
    }
  }

  async #sendItems<Request, Item>(
    method: ServerStreamMethod<Request, Item>,
    handle: ServerStreamHandler<Request, Item>,
    request: Request,
  ): Promise<void> {
    const iterator = handle(request, this.#streamContext())[Symbol.asyncIterator]();
    let isDone = false;
    try {
      for (;;) {
        await this.credit?.available();
        const next = await iterator.next();
        isDone = next.done === true;
        if (next.done) return;
        this.signal.throwIfAborted();
        const payload = encodeItem(method.response, next.value);
        this.credit?.spend(payload);
        await this.#host.send(frame("response", this.callId, { payload }));
        this.signal.throwIfAborted();
      }
    } finally {
      // A handler has ended only when it has cleaned up.
      if (!isDone) await iterator.return?.();
    }
  }

  #streamContext(): StreamContext {
    const { callId, method, peer, signal, credit } = this;
    return {
      callId,
      method,
      peer,
      signal,
      giveUp: (error) => this.giveUp(error),
      hasCredit: credit !== undefined,
      get acknowledgedItems() {
        return credit?.acknowledgedItems ?? 0;
      },
      onAcknowledged: (listener) => credit?.onAcknowledged(listener),
    };
  }

  /** What the peer is told: why the call was given up, if it was, else what the handler threw. */
  #endError(thrown: unknown): CprgError {
    if (this.signal.aborted) return CprgError.from(this.signal.reason);
    if (CprgError.is(thrown)) return thrown;
    this.#host.reportBug(thrown, this);
    return new CprgError("internal", "the handler failed");
  }
}
