/** What the three kinds of calls do with the answers, on the caller's side. */

import { assert, CprgError } from "../core/errors.ts";
import { NO_PAYLOAD } from "./call-host.ts";
import type { ClientStreamMethod, Codec, StreamCall } from "./contract.ts";
import type { ItemQueue } from "./item-queue.ts";
import { ITEM_BYTES_MAX, UNARY_BYTES_MAX } from "./limits.ts";
import type { AnswerTaker, OutgoingCall } from "./outgoing-call.ts";
import { encodeItem } from "./payload-bounds.ts";
import type { SendCredit } from "./send-credit.ts";

/** Takes the one answer of a unary or client-streaming call. */
export class OneAnswer<Response> implements AnswerTaker {
  readonly result: Promise<Response>;
  readonly #codec: Codec<Response>;
  #resolve: (response: Response) => void = () => undefined;
  #reject: (error: CprgError) => void = () => undefined;

  constructor(codec: Codec<Response>) {
    this.#codec = codec;
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  response(payload: Uint8Array, call: OutgoingCall): undefined {
    if (payload.length > UNARY_BYTES_MAX) throw badAnswer("the answer is too large");
    this.#resolve(decodeAnswer(this.#codec, payload));
    call.end();
  }

  isEnd(): boolean {
    return true;
  }

  leave(error: CprgError): void {
    this.#reject(error);
  }

  end(error: CprgError | undefined): void {
    // After `response` this changes nothing: the promise is settled.
    this.#reject(error ?? new CprgError("internal", "ended without an answer"));
  }
}

/** As {@link OneAnswer}, for a call that sends items as long as it is open. */
export class UploadAnswer<Response> extends OneAnswer<Response> {
  readonly #over = new AbortController();

  /** Aborted when the call has ended, for whatever reason. */
  get hasEnded(): AbortSignal {
    return this.#over.signal;
  }

  override end(error: CprgError | undefined): void {
    super.end(error);
    this.#over.abort();
  }

  override leave(error: CprgError): void {
    super.leave(error);
    this.#over.abort();
  }
}

/** Takes the items of a server-streaming call. */
export class ItemAnswers<Item> implements AnswerTaker {
  readonly queue: ItemQueue;
  readonly #codec: Codec<Item>;

  constructor(codec: Codec<Item>, queue: ItemQueue) {
    this.#codec = codec;
    this.queue = queue;
  }

  response(payload: Uint8Array, call: OutgoingCall): Promise<void> | undefined {
    if (payload.length === 0) {
      call.end();
      return undefined;
    }
    if (payload.length > ITEM_BYTES_MAX) throw badAnswer("an item is too large");
    if (this.queue.isBeyondCredit) {
      throw new CprgError("resource_exhausted", "an item came without credit");
    }
    return this.queue.push(payload);
  }

  isEnd(payload: Uint8Array): boolean {
    return payload.length === 0;
  }

  end(error: CprgError | undefined): void {
    this.queue.end(error);
  }

  leave(error: CprgError): void {
    this.queue.fail(error);
  }

  async next(): Promise<IteratorResult<Item, undefined>> {
    const payload = await this.queue.next();
    if (payload === undefined) return { done: true, value: undefined };
    return { done: false, value: decodeAnswer(this.#codec, payload) };
  }
}

/** The call as its maker sees it. */
export function streamCall<Item>(call: OutgoingCall, answers: ItemAnswers<Item>): StreamCall<Item> {
  let isTaken = false;
  const leave = (error: CprgError): void => call.leave(error);
  return {
    cancel: (reason) => call.cancel(reason),
    ended: call.ended,
    [Symbol.asyncIterator]() {
      assert(!isTaken, "a call's items have one reader");
      isTaken = true;
      return {
        next: () =>
          answers.next().catch((error: CprgError) => {
            leave(error);
            throw error;
          }),
        return: async () => {
          leave(new CprgError("canceled", "the reader left"));
          return { done: true, value: undefined };
        },
      };
    },
  };
}

/** What sending the items of an upload needs. */
export interface UploadSetup<Item, Response> {
  readonly call: OutgoingCall;
  readonly method: ClientStreamMethod<Item, Response>;
  /** Without it there is none to wait for. */
  readonly credit: SendCredit | undefined;
}

/**
 * Sends items until they or the call end; never rejects: what goes wrong ends the call.
 *
 * @param hasEnded of the call's {@link UploadAnswer}
 */
export async function sendItems<Item, Response>(
  setup: UploadSetup<Item, Response>,
  items: AsyncIterable<Partial<Item>> | Iterable<Partial<Item>>,
  hasEnded: AbortSignal,
): Promise<void> {
  const { call, credit } = setup;
  let method = setup.method.name;
  const send = async (payload: Uint8Array): Promise<void> => {
    await call.send({ method, payload });
    method = "";
  };
  try {
    for await (const item of untilAborted(items, hasEnded)) {
      const payload = encodeItem(setup.method.request, item);
      await credit?.available();
      credit?.spend(payload);
      await send(payload);
    }
    await send(NO_PAYLOAD);
  } catch (error) {
    // Without effect if the call has ended: then that is what the caller hears.
    call.leave(CprgError.from(error, "upload"));
  }
}

/** Items until the signal aborts, also while the next one is awaited. */
async function* untilAborted<T>(
  items: AsyncIterable<T> | Iterable<T>,
  signal: AbortSignal,
): AsyncGenerator<T, void, undefined> {
  const iterator = iteratorOf(items);
  let isDone = false;
  try {
    while (!signal.aborted) {
      const next = await orAborted(iterator.next(), signal);
      isDone = next?.done === true;
      if (next === undefined || next.done) return;
      yield next.value;
    }
  } finally {
    // Not awaited: a source that is stuck must not hold the call.
    if (!isDone) Promise.resolve(iterator.return?.()).catch(() => undefined);
  }
}

/** Not `Promise.race`: that would leave something behind at the signal for each item. */
function orAborted<T>(next: T | Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve(undefined);
    signal.addEventListener("abort", onAbort, { once: true });
    Promise.resolve(next)
      .then(resolve, reject)
      .finally(() => signal.removeEventListener("abort", onAbort));
  });
}

function iteratorOf<T>(items: AsyncIterable<T> | Iterable<T>): AsyncIterator<T> | Iterator<T> {
  return Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
}

function decodeAnswer<T>(codec: Codec<T>, payload: Uint8Array): T {
  try {
    return codec.decode(payload);
  } catch (cause) {
    throw new CprgError("internal", "the answer is not the method's message", { cause });
  }
}

function badAnswer(message: string): CprgError {
  return new CprgError("internal", message);
}
