/** The calls of the peer: which REQUEST begins one, which continues one, and which is refused. */

import { CprgError } from "../core/errors.ts";
import { utf8Bytes } from "../core/text-rules.ts";
import { type CallHost, frame as frameOf } from "./call-host.ts";
import type { CallContext, Frame, MuxCounts } from "./contract.ts";
import { errorText } from "./error-text.ts";
import type { Handlers, Served } from "./handlers.ts";
import { IncomingCall } from "./incoming-call.ts";
import {
  EARLY_ANSWERS_MAX,
  NAME_BYTES_MAX,
  OPEN_CALLS_MAX,
  REQUEST_BYTES_MAX,
  UNARY_BYTES_MAX,
} from "./limits.ts";

/** What it is made of. */
interface IncomingSetup {
  readonly handlers: Handlers;
  readonly counts: MuxCounts;
}

/** Calls that are being answered, by id. */
export class IncomingCalls {
  readonly #host: CallHost;
  readonly #handlers: Handlers;
  readonly #counts: MuxCounts;
  readonly #open = new Map<string, IncomingCall>();
  /**
   * Calls that were answered while items of theirs may be under way, oldest first, with the method
   * that such an item may repeat; empty: it repeats none.
   */
  readonly #early = new Map<string, string>();
  #requestBytes = 0;
  #whenNone: (() => void) | undefined;

  constructor(host: CallHost, { handlers, counts }: IncomingSetup) {
    this.#host = host;
    this.#handlers = handlers;
    this.#counts = counts;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Takes a REQUEST, other than the mux's own. A promise holds back the stream. */
  request(frame: Frame): Promise<void> | undefined {
    const call = this.#open.get(frame.id);
    if (call !== undefined) return this.#further(call, frame);
    if (this.#isLateItem(frame)) {
      this.#counts.late += 1;
      return undefined;
    }
    if (frame.method === "" || isTooLong(frame.id)) {
      this.#counts.dropped += 1;
      return undefined;
    }
    const served = this.#handlers.find(frame.method);
    if (served?.method.kind === "notice") this.#notice(served, frame);
    else if (frame.id === "") this.#counts.dropped += 1;
    else return this.#begin(served, frame);
    return undefined;
  }

  /** The caller gives a call up. */
  cancel(id: string, reason: string): void {
    const call = this.#open.get(id);
    if (call === undefined) this.#counts.late += 1;
    else call.giveUp(new CprgError("canceled", reason === "" ? "cancelled" : reason));
  }

  /** Credit for items that the call sends. */
  grant(id: string, bytes: number): void {
    const credit = this.#open.get(id)?.credit;
    if (credit === undefined) this.#counts.late += 1;
    else credit.grant(bytes);
  }

  abortAll(error: CprgError): void {
    for (const call of this.#open.values()) call.giveUp(error);
  }

  /** Resolves when no handler runs. */
  async allEnded(): Promise<void> {
    while (this.#open.size > 0) {
      await new Promise<void>((resolve) => {
        this.#whenNone = resolve;
      });
    }
  }

  #further(call: IncomingCall, { method, payload }: Frame): Promise<void> | undefined {
    if (call.takesItems && (method === "" || method === call.method)) return call.item(payload);
    // The caller cannot know any more which of the two an answer belongs to.
    this.#counts.refused += 1;
    call.giveUp(new CprgError("already_exists", "the id of an open call came again"));
    return undefined;
  }

  /** An item of a call that was answered before its items ended; their end comes last. */
  #isLateItem({ id, method, payload }: Frame): boolean {
    const repeated = this.#early.get(id);
    if (repeated === undefined || (method !== "" && method !== repeated)) return false;
    if (payload.length === 0) this.#early.delete(id);
    return true;
  }

  #rememberEarly(id: string, method: string): void {
    this.#early.set(id, method);
    const [oldest] = this.#early.keys();
    if (this.#early.size > EARLY_ANSWERS_MAX && oldest !== undefined) this.#early.delete(oldest);
  }

  #begin(served: Served | undefined, frame: Frame): Promise<void> | undefined {
    let request: object | undefined;
    try {
      request = this.#admit(served, frame);
    } catch (error) {
      this.#counts.refused += 1;
      this.#host.post(frameOf("error", frame.id, { error: errorText(CprgError.from(error)) }));
      // Of an unknown method nobody here knows whether it takes items.
      if (served === undefined) this.#rememberEarly(frame.id, "");
      else if (served.method.kind === "clientStream") this.#rememberEarly(frame.id, frame.method);
      return undefined;
    }
    if (served === undefined) return undefined;
    const call = new IncomingCall(this.#host, served, frame);
    this.#open.set(call.callId, call);
    this.#requestBytes += call.requestBytes;
    void call.serve(served, request).then(() => this.#ended(call));
    return call.kind === "clientStream" ? call.item(frame.payload) : undefined;
  }

  /** The request, decoded; undefined for one that comes in items. */
  #admit(served: Served | undefined, { method, payload }: Frame): object | undefined {
    if (isTooLong(method)) {
      throw new CprgError("invalid_argument", `a method has at most ${NAME_BYTES_MAX} bytes`);
    }
    if (served === undefined) throw new CprgError("unimplemented", `no method "${method}"`);
    if (this.#open.size >= OPEN_CALLS_MAX) {
      throw new CprgError("resource_exhausted", `${OPEN_CALLS_MAX} calls are open`);
    }
    // Items have bounds of their own.
    if (served.method.kind === "clientStream") return undefined;
    if (this.#requestBytes + payload.length > REQUEST_BYTES_MAX) {
      throw new CprgError("resource_exhausted", "too many bytes of unfinished requests");
    }
    if (payload.length > UNARY_BYTES_MAX) {
      throw new CprgError("invalid_argument", `a request has at most ${UNARY_BYTES_MAX} bytes`);
    }
    return served.method.request.decode(payload);
  }

  #notice(served: Served, { id, method, payload }: Frame): void {
    const { peer } = this.#host;
    if (payload.length > UNARY_BYTES_MAX) {
      this.#counts.dropped += 1;
      return;
    }
    const controller = new AbortController();
    const context: CallContext = {
      callId: id,
      method,
      peer,
      signal: controller.signal,
      giveUp: (error) => controller.abort(error),
    };
    let request: object;
    try {
      request = served.method.request.decode(payload);
    } catch {
      this.#counts.dropped += 1;
      return;
    }
    try {
      void served.handle(request as never, context as never);
    } catch (error) {
      this.#host.reportBug(error, context);
    }
  }

  #ended(call: IncomingCall): void {
    this.#open.delete(call.callId);
    if (call.takesItems) this.#rememberEarly(call.callId, call.method);
    this.#requestBytes -= call.requestBytes;
    if (this.#open.size === 0) this.#whenNone?.();
  }
}

function isTooLong(name: string): boolean {
  return name.length > NAME_BYTES_MAX || utf8Bytes(name) > NAME_BYTES_MAX;
}
