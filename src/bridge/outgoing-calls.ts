/** The calls that this side has open, and what the peer says to them. */

import { CprgError } from "../core/errors.ts";
import type { CallHost } from "./call-host.ts";
import type { CallOptions, Frame, MuxCounts } from "./contract.ts";
import { errorOfText } from "./error-text.ts";
import { OPEN_CALLS_MAX } from "./limits.ts";
import { type AnswerTaker, abortError, OutgoingCall } from "./outgoing-call.ts";
import type { SendCredit } from "./send-credit.ts";

/** Ids of calls are numbers in this base. */
const ID_RADIX = 36;
/** Ids of notices begin so. */
const NOTICE_ID = "n-";

/** What a call is opened with; an id of {@link OutgoingCalls.newId} if it was needed before. */
interface NewCall {
  readonly id?: string;
  readonly taker: AnswerTaker;
  readonly credit?: SendCredit | undefined;
}

/** Open calls by id. */
export class OutgoingCalls {
  readonly #host: CallHost;
  readonly #counts: MuxCounts;
  readonly #open = new Map<string, OutgoingCall>();
  #idsMade = 0;
  #noticeIdsMade = 0;
  #error: CprgError | undefined;

  constructor(host: CallHost, counts: MuxCounts) {
    this.#host = host;
    this.#counts = counts;
  }

  /** An id that no call of this side has had. */
  newId(): string {
    this.#idsMade += 1;
    return this.#idsMade.toString(ID_RADIX);
  }

  /** An id that no notice of this side has had; it tells a notice from a call. */
  newNoticeId(): string {
    this.#noticeIdsMade += 1;
    return `${NOTICE_ID}${this.#noticeIdsMade}`;
  }

  /** A call, which has ended already if it cannot be made. */
  open({ id = this.newId(), taker, credit }: NewCall, options: CallOptions): OutgoingCall {
    const forget = (): void => void this.#open.delete(id);
    const call = new OutgoingCall({ id, host: this.#host, taker, credit, forget }, options);
    const problem = this.#problem(options);
    if (problem === undefined) this.#open.set(id, call);
    else call.leave(problem);
    return call;
  }

  /** Takes a RESPONSE. A promise holds back the stream. */
  response({ id, payload }: Frame): Promise<void> | undefined {
    const call = this.#open.get(id);
    if (call === undefined || call.isLeft) this.#unexpected(id, call);
    return call?.response(payload);
  }

  /** Takes an ERROR. */
  error({ id, error }: Frame): void {
    const call = this.#open.get(id);
    if (call !== undefined) call.end(errorOfText(error));
    else this.#unexpected(id, call);
  }

  /** Credit for items that the call sends. */
  grant(id: string, bytes: number): void {
    const credit = this.#open.get(id)?.credit;
    if (credit === undefined) this.#counts.late += 1;
    else credit.grant(bytes);
  }

  /** The stream is over: ends every call, and every one that is opened later. */
  endAll(error: CprgError): void {
    this.#error ??= error;
    for (const call of [...this.#open.values()]) call.end(error);
  }

  #unexpected(id: string, call: OutgoingCall | undefined): void {
    if (call !== undefined || this.#wasMade(id)) this.#counts.late += 1;
    else this.#counts.dropped += 1;
  }

  /** Whether a call or a notice of this side has had the id. */
  #wasMade(id: string): boolean {
    const isNotice = id.startsWith(NOTICE_ID);
    const number = isNotice ? Number(id.slice(NOTICE_ID.length)) : Number.parseInt(id, ID_RADIX);
    if (!(number >= 1)) return false;
    if (isNotice) return number <= this.#noticeIdsMade && id === `${NOTICE_ID}${number}`;
    return number <= this.#idsMade && id === number.toString(ID_RADIX);
  }

  #problem({ signal }: CallOptions): CprgError | undefined {
    if (this.#error !== undefined) return this.#error;
    if (signal?.aborted) return abortError(signal.reason);
    if (this.#open.size < OPEN_CALLS_MAX) return undefined;
    return new CprgError("resource_exhausted", `${OPEN_CALLS_MAX} calls are open`);
  }
}
