/**
 * The mux: two equal peers that call each other over one stream of frames. It knows no transport and
 * no task. What a peer sends can end a call or the stream, never the process.
 */

import { CprgError } from "../core/errors.ts";
import { startTimer } from "../core/timer.ts";
import type { CancelRequest, CreditRequest } from "../gen/messages.ts";
import { type CallHost, frame, itemQueue } from "./call-host.ts";
import type {
  CallContext,
  CallEnd,
  CallOptions,
  ClientStreamMethod,
  Frame,
  FrameStream,
  Mux,
  MuxCounts,
  NoticeMethod,
  PeerCapabilities,
  ServerStreamMethod,
  StreamCall,
  UnaryMethod,
} from "./contract.ts";
import { cutText } from "./error-text.ts";
import type { Handlers } from "./handlers.ts";
import { IncomingCalls } from "./incoming-calls.ts";
import { DROPPED_FRAMES_MAX, GRANT_BYTES_MAX, REASON_BYTES_MAX } from "./limits.ts";
import { CANCEL, CREDIT } from "./methods.ts";
import { Outbox } from "./outbox.ts";
import type { OutgoingCall } from "./outgoing-call.ts";
import { OutgoingCalls } from "./outgoing-calls.ts";
import { ItemAnswers, OneAnswer, sendItems, streamCall, UploadAnswer } from "./outgoing-kinds.ts";
import { encodeUnary } from "./payload-bounds.ts";
import { SendCredit } from "./send-credit.ts";

/** How long a normal end waits for frames that are on their way out. */
export const FLUSH_MS_MAX = 5000;

/** What a mux is made of. */
export interface MuxOptions {
  readonly handlers: Handlers;
  /** What this side lists in its metadata. */
  readonly own: readonly string[];
  readonly peer: PeerCapabilities;
  /** Timers of timeouts and stalls; the runtime's own by default. */
  readonly startTimer?: typeof startTimer;
  /** A handler threw what is no CprgError: the peer hears `internal`, this hears all. */
  readonly onBug?: (error: unknown, context: CallContext | undefined) => void;
}

/** Starts reading a stream, and gives the calls over it. */
export function openMux(stream: FrameStream, options: MuxOptions): Mux {
  return new StreamMux(stream, options);
}

class StreamMux implements Mux, CallHost {
  readonly peer: PeerCapabilities;
  readonly startTimer: typeof startTimer;
  readonly counts: MuxCounts = {
    framesReceived: 0,
    framesSent: 0,
    bytesReceived: 0,
    bytesSent: 0,
    late: 0,
    dropped: 0,
    refused: 0,
  };
  readonly closed: Promise<CallEnd>;
  readonly #stream: FrameStream;
  readonly #options: MuxOptions;
  readonly #outbox: Outbox;
  readonly #outgoing: OutgoingCalls;
  readonly #incoming: IncomingCalls;
  /** Set once: how the stream is to end, or has. */
  #end: CallEnd | undefined;
  #isFinished = false;

  constructor(stream: FrameStream, options: MuxOptions) {
    this.#stream = stream;
    this.#options = options;
    this.peer = options.peer;
    this.startTimer = options.startTimer ?? startTimer;
    this.#outbox = new Outbox(stream, {
      sent: ({ payload }) => {
        this.counts.framesSent += 1;
        this.counts.bytesSent += payload.length;
      },
      lost: (error) => this.#finish(CprgError.from(error)),
    });
    this.#outgoing = new OutgoingCalls(this, this.counts);
    this.#incoming = new IncomingCalls(this, { handlers: options.handlers, counts: this.counts });
    this.closed = this.#run();
  }

  get servedCalls(): number {
    return this.#incoming.size;
  }

  async call<Request, Response>(
    method: UnaryMethod<Request, Response>,
    request: Partial<Request>,
    options: CallOptions = {},
  ): Promise<Response> {
    const payload = encodeUnary(method.request, request);
    const answer = new OneAnswer(method.response);
    const call = this.#outgoing.open({ taker: answer }, options);
    this.#start(call, { method: method.name, payload });
    return await answer.result;
  }

  stream<Request, Item>(
    method: ServerStreamMethod<Request, Item>,
    request: Partial<Request>,
    options: CallOptions = {},
  ): StreamCall<Item> {
    const id = this.#outgoing.newId();
    const giveUp = (error: CprgError): void => call.leave(error);
    const queue = itemQueue(this, { id, upload: false, giveUp });
    const answers = new ItemAnswers(method.response, queue);
    const call = this.#outgoing.open({ id, taker: answers }, options);
    try {
      this.#start(call, { method: method.name, payload: encodeUnary(method.request, request) });
    } catch (error) {
      call.leave(CprgError.from(error, method.name));
    }
    return streamCall(call, answers);
  }

  async upload<Item, Response>(
    method: ClientStreamMethod<Item, Response>,
    items: AsyncIterable<Partial<Item>> | Iterable<Partial<Item>>,
    options: CallOptions = {},
  ): Promise<Response> {
    const answer = new UploadAnswer(method.response);
    const credit = this.hasCredit() ? new SendCredit(answer.hasEnded) : undefined;
    const call = this.#outgoing.open({ taker: answer, credit }, options);
    void sendItems({ call, method, credit }, items, answer.hasEnded);
    return await answer.result;
  }

  async notify<Request>(method: NoticeMethod<Request>, request: Partial<Request>): Promise<void> {
    await this.#sendNotice(method.name, encodeUnary(method.request, request));
  }

  close(error?: CprgError): void {
    if (error === undefined && this.#end === undefined) {
      // Answers that are on their way still go out: a drain ends with one.
      const timer = this.startTimer(FLUSH_MS_MAX, () => this.#finish(undefined));
      void this.#outbox.flushed().then(() => {
        timer.clear();
        this.#finish(undefined);
      });
      this.#endCalls({ error });
      return;
    }
    this.#finish(error);
  }

  hasCredit(): boolean {
    return this.#options.own.includes(CREDIT.name) && this.peer.has(CREDIT.name);
  }

  send(frame: Frame): Promise<void> {
    return this.#outbox.send(frame);
  }

  post(frame: Frame): void {
    this.#outbox.post(frame);
  }

  notice(method: string, payload: Uint8Array): void {
    this.#sendNotice(method, payload).catch(() => undefined);
  }

  reportBug(error: unknown, context: CallContext | undefined): void {
    this.#options.onBug?.(error, context);
  }

  #start(call: OutgoingCall, request: Pick<Frame, "method" | "payload">): void {
    // A stream that is lost ends the call.
    call.send(request).catch(() => undefined);
  }

  #sendNotice(method: string, payload: Uint8Array): Promise<void> {
    return this.#outbox.send(frame("request", this.#outgoing.newNoticeId(), { method, payload }));
  }

  async #run(): Promise<CallEnd> {
    let error: CprgError | undefined;
    try {
      for await (const frame of this.#stream.frames) {
        if (this.#isFinished) break;
        await this.#receive(frame);
        if (this.#outbox.isFull) await this.#outbox.room();
      }
    } catch (thrown) {
      error = CprgError.from(thrown, "read from the stream");
    }
    this.#finish(error);
    await this.#incoming.allEnded();
    return this.#end ?? { error };
  }

  #receive(frame: Frame): Promise<void> | undefined {
    this.counts.framesReceived += 1;
    this.counts.bytesReceived += frame.payload.length;
    if (this.#end !== undefined) {
      // This side is closing: its calls are over, and it begins no others.
      this.counts.late += 1;
      return undefined;
    }
    const hold = this.#dispatch(frame);
    if (this.counts.dropped > DROPPED_FRAMES_MAX) {
      const reason = "PROTOCOL_ERROR";
      this.#finish(
        new CprgError("invalid_argument", "too many frames that break a rule", { reason }),
      );
    }
    return hold;
  }

  #dispatch(frame: Frame): Promise<void> | undefined {
    switch (frame.kind) {
      case "request":
        return this.#request(frame);
      case "response":
        return this.#outgoing.response(frame);
      case "error":
        this.#outgoing.error(frame);
        return undefined;
      case "unknown":
        this.counts.dropped += 1;
        return undefined;
    }
  }

  #request(frame: Frame): Promise<void> | undefined {
    if (frame.method !== CANCEL.name && frame.method !== CREDIT.name) {
      return this.#incoming.request(frame);
    }
    try {
      if (frame.method === CANCEL.name) this.#cancel(CANCEL.request.decode(frame.payload));
      else this.#grant(CREDIT.request.decode(frame.payload));
    } catch {
      this.counts.dropped += 1;
    }
    return undefined;
  }

  #cancel({ requestId, reason }: CancelRequest): void {
    this.#incoming.cancel(requestId, cutText(reason, REASON_BYTES_MAX));
  }

  #grant({ requestId, bytes, upload }: CreditRequest): void {
    if (!this.hasCredit() || bytes <= 0 || bytes > GRANT_BYTES_MAX) this.counts.dropped += 1;
    else if (upload) this.#outgoing.grant(requestId, bytes);
    else this.#incoming.grant(requestId, bytes);
  }

  /** The stream is over for this side; once. */
  #finish(error: CprgError | undefined): void {
    if (this.#isFinished) return;
    this.#isFinished = true;
    this.#endCalls({ error });
    this.#outbox.fail(lossOf(this.#end?.error));
    this.#stream.close(this.#end?.error);
  }

  #endCalls(end: CallEnd): void {
    this.#end ??= end;
    const loss = lossOf(this.#end.error);
    this.#outgoing.endAll(loss);
    this.#incoming.abortAll(loss);
  }
}

/** What the end of the stream is to a call. */
function lossOf(error: CprgError | undefined): CprgError {
  if (error === undefined) return new CprgError("unavailable", "the stream has ended");
  const reason = error.reason === undefined ? {} : { reason: error.reason };
  return new CprgError("unavailable", `the stream has ended: ${error.message}`, {
    ...reason,
    cause: error,
  });
}
