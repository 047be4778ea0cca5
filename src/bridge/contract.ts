/**
 * The contract of the bridge: what a method is, how it is called and served, and what carries the
 * frames. `mux.ts` implements {@link Mux}; listener, dialer and the simulation implement
 * {@link FrameStream}. The rules are those of proto/PROTOCOL.md, whose sections are named here.
 */

import type { CprgError } from "../core/errors.ts";

/**
 * How many frames go each way (section 5). A notice is never answered; the other kinds have exactly
 * one end.
 */
export type MethodKind = "unary" | "serverStream" | "clientStream" | "notice";

/** Messages of one type to bytes and back. */
export interface Codec<T> {
  /** Fields that are left out have their default. */
  encode(message: Partial<T>): Uint8Array;
  /**
   * Gives a plain object with every field set, except members of a oneof and `optional` ones. Bytes
   * are views of `bytes`.
   *
   * @throws CprgError `invalid_argument` when the bytes are no such message
   */
  decode(bytes: Uint8Array): T;
}

/** A method: its name on the wire, its kind, its messages. */
export interface Method<Kind extends MethodKind, Request, Response> {
  readonly name: string;
  readonly kind: Kind;
  readonly request: Codec<Request>;
  readonly response: Codec<Response>;
}

export type UnaryMethod<Request, Response> = Method<"unary", Request, Response>;
export type ServerStreamMethod<Request, Item> = Method<"serverStream", Request, Item>;
export type ClientStreamMethod<Item, Response> = Method<"clientStream", Item, Response>;
export type NoticeMethod<Request> = Omit<Method<"notice", Request, never>, "response">;

/** Bounds of one call. */
export interface CallOptions {
  /** Aborting it cancels the call, which then fails with `canceled` at once. */
  readonly signal?: AbortSignal;
  /** Relative; when it is over, the call is cancelled and fails with `deadline_exceeded` at once. */
  readonly timeoutMs?: number;
}

/**
 * A server-streaming call. It is iterated once, by one reader; a reader that does not read holds
 * back the other side, not memory, and no other call.
 *
 * The iteration ends when the callee ended the call well, and throws the CprgError of its end
 * otherwise. Leaving the loop early cancels the call.
 */
export interface StreamCall<Item> extends AsyncIterable<Item> {
  /**
   * Asks the callee to give the call up. Iteration goes on with what is under way and throws
   * `canceled` when the callee answers: that answer proves that nothing of the call runs any more.
   */
  cancel(reason: string): void;
  /** Resolves when the callee has ended the call, or the stream is gone; never rejects. */
  readonly ended: Promise<CallEnd>;
}

/** How a call ended: well, or with what the callee (or the loss of the stream) said. */
export type CallEnd = { readonly error: CprgError | undefined };

/**
 * One of two equal peers that call each other over one stream. A call on a stream that has ended
 * fails at once.
 */
export interface Mux {
  /** What the other side lists (section 3). */
  readonly peer: PeerCapabilities;
  /**
   * Calls a unary method.
   *
   * @throws CprgError with the code and reason that the callee answered; `canceled`,
   *   `deadline_exceeded` from the options; `unavailable` when the stream ends;
   *   `resource_exhausted` when too many calls are open
   */
  call<Request, Response>(
    method: UnaryMethod<Request, Response>,
    request: Partial<Request>,
    options?: CallOptions,
  ): Promise<Response>;
  /** Calls a server-streaming method. What goes wrong is thrown by the iteration. */
  stream<Request, Item>(
    method: ServerStreamMethod<Request, Item>,
    request: Partial<Request>,
    options?: CallOptions,
  ): StreamCall<Item>;
  /**
   * Calls a client-streaming method: pulls `items` as the callee consumes them, and resolves with
   * its answer. An answer that comes before the end of `items` ends the pulling (`return()`); an
   * error of `items` cancels the call and is thrown.
   */
  upload<Item, Response>(
    method: ClientStreamMethod<Item, Response>,
    items: AsyncIterable<Partial<Item>> | Iterable<Partial<Item>>,
    options?: CallOptions,
  ): Promise<Response>;
  /** Sends a notice. Resolves when the stream took it. */
  notify<Request>(method: NoticeMethod<Request>, request: Partial<Request>): Promise<void>;
  /**
   * Ends the stream, with an error as its status, or well (status OK) after what is on its way out.
   * Open calls of this side fail and handlers are aborted with `unavailable`, whose reason and cause
   * are the error's. Idempotent; the first error stands.
   */
  close(error?: CprgError): void;
  /** Resolves when the stream has ended and every handler has; never rejects. */
  readonly closed: Promise<CallEnd>;
  /** Whether the stream has ended, or is being closed by this side: calls fail at once. */
  readonly hasEnded: boolean;
  /** When its last frame came, or it was opened, by `performance.now()`. */
  readonly lastFrameMs: number;
  /** Calls that this side answers now: `active_requests` of a heartbeat. */
  readonly servedCalls: number;
  /** What was seen so far. */
  readonly counts: Readonly<MuxCounts>;
}

/** Which capabilities a peer lists. */
export interface PeerCapabilities {
  has(capability: string): boolean;
}

/** What a handler gets beside its request. */
export interface CallContext {
  /** Id of the call on the wire, for logs. */
  readonly callId: string;
  readonly method: string;
  readonly peer: PeerCapabilities;
  /**
   * Aborted when the caller cancels or the stream ends, with the CprgError as its reason. A handler
   * ends soon after that; the caller is answered when it has ended.
   */
  readonly signal: AbortSignal;
  /**
   * Ends the call with an error of this side, also while it waits for credit: {@link signal} aborts
   * with it. The first of several reasons stands.
   */
  giveUp(error: CprgError): void;
}

/** What the handler of a server-streaming call gets. */
export interface StreamContext extends CallContext {
  /** Whether both sides list credit: without it {@link acknowledgedItems} stays 0. */
  readonly hasCredit: boolean;
  /** How many of the items given so far the caller has consumed for sure (section 6). */
  readonly acknowledgedItems: number;
  /** Calls back each time that {@link acknowledgedItems} grows; one listener. */
  onAcknowledged(listener: (acknowledgedItems: number) => void): void;
}

/**
 * Handlers. What they throw is the call's ERROR: a CprgError as it is, anything else as `internal`
 * with its message kept from the peer.
 */
export type UnaryHandler<Request, Response> = (
  request: Request,
  context: CallContext,
) => Promise<Partial<Response>> | Partial<Response>;

/**
 * Items are pulled only when they can be sent: an async generator that reads from a program holds
 * that program back. When `context.signal` aborts, a `next()` that is pending has to settle; then
 * `return()` is called.
 */
export type ServerStreamHandler<Request, Item> = (
  request: Request,
  context: StreamContext,
) => AsyncIterable<Partial<Item>>;

/** `items` throws the reason of `context.signal` once that is aborted. */
export type ClientStreamHandler<Item, Response> = (
  items: AsyncIterable<Item>,
  context: CallContext,
) => Promise<Partial<Response>>;

export type NoticeHandler<Request> = (request: Request, context: CallContext) => void;

/** The methods that a side serves; `Handlers` of handlers.ts implements it. */
export interface HandlerTable {
  unary<Request, Response>(
    method: UnaryMethod<Request, Response>,
    handler: UnaryHandler<Request, Response>,
  ): this;
  serverStream<Request, Item>(
    method: ServerStreamMethod<Request, Item>,
    handler: ServerStreamHandler<Request, Item>,
  ): this;
  clientStream<Item, Response>(
    method: ClientStreamMethod<Item, Response>,
    handler: ClientStreamHandler<Item, Response>,
  ): this;
  notice<Request>(method: NoticeMethod<Request>, handler: NoticeHandler<Request>): this;
  /** Names of the methods, sorted: what the side lists in its metadata. */
  readonly names: readonly string[];
}

/** What a frame is to its call; `unknown` stands for every number that has no meaning. */
export type FrameKind = "request" | "response" | "error" | "unknown";

/** An Envelope (section 4). */
export interface Frame {
  readonly id: string;
  readonly method: string;
  readonly payload: Uint8Array;
  readonly kind: FrameKind;
  readonly error: string;
}

/**
 * A stream of frames between two peers, in order and without loss until it ends.
 */
export interface FrameStream {
  /**
   * Frames of the peer, to one reader. A reader that does not read holds the peer back. Ends when
   * the peer ended the stream well; throws a CprgError otherwise.
   */
  readonly frames: AsyncIterable<Frame>;
  /**
   * Sends a frame. Resolves when the transport has room for the next, and is called again only
   * then.
   *
   * @throws CprgError when the stream has ended
   */
  send(frame: Frame): Promise<void>;
  /** Ends the stream, with an error as its status; idempotent. `frames` ends soon after. */
  close(error?: CprgError): void;
}

/** Counters of one mux: frames and what was wrong with them. */
export interface MuxCounts {
  framesReceived: number;
  framesSent: number;
  bytesReceived: number;
  bytesSent: number;
  /**
   * Answers to ids that this side has used, items of calls answered before their end, cancels and
   * credit of ended calls: no fault of anyone.
   */
  late: number;
  /** Frames that break a rule and were dropped. */
  dropped: number;
  /** Frames that break a rule and were answered with ERROR, or ended a call. */
  refused: number;
}
