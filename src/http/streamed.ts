/**
 * Answers whose bodies come in pieces: sent as fast as the client reads, held in memory as little,
 * broken off when the key ends. Each takes one of the places for streams while it goes on.
 */

import type { Context } from "hono";
import type { AppEnv } from "./env.ts";
import type { StreamPlace, StreamPlaces } from "./stream-places.ts";

/** Pieces are gathered to about this size before they are sent. */
const CHUNK_CHARS = 32 * 1024;

/** Status and headers of an answer. */
export interface StreamedInit {
  readonly status?: number;
  readonly headers: Record<string, string>;
}

/** What an answer of bytes may say besides. */
export interface StreamedBytesInit extends StreamedInit {
  /** Ends what the next piece waits for: called once, however the answer ends. */
  onOver?(): void;
  /** A place that was taken for it; without one it takes its own. */
  readonly place?: StreamPlace;
}

/** What all streamed answers of an app share. */
export interface StreamedAnswersOptions {
  readonly places: StreamPlaces;
  /** An answer that broke off for a reason of ours. */
  onBroken(c: Context<AppEnv>, error: unknown): void;
}

type Pieces = AsyncGenerator<string | Uint8Array>;

interface BodyInit {
  readonly place: StreamPlace;
  onOver?(): void;
}

/** Makes them. */
export class StreamedAnswers {
  readonly #options: StreamedAnswersOptions;

  constructor(options: StreamedAnswersOptions) {
    this.#options = options;
  }

  /** A place for an answer of this request's tenant. @throws CprgError with reason STREAMS_FULL */
  place(c: Context<AppEnv>): StreamPlace {
    return this.#options.places.take(c.get("principal").tenant);
  }

  /**
   * A response of text in pieces. A short one is sent whole, with its length, and takes no place; an
   * error before the first chunk is thrown, a later one breaks the connection off, so that a client
   * never takes half for all.
   *
   * @throws CprgError with reason STREAMS_FULL
   */
  async text(
    c: Context<AppEnv>,
    pieces: AsyncIterable<string>,
    init: StreamedInit,
  ): Promise<Response> {
    const chunks = gather(pieces);
    const first = await chunks.next();
    const second = first.done ? first : await chunks.next();
    if (second.done) return new Response(first.done ? "" : first.value, init);
    const place = await this.#placeFor(c, chunks);
    const rest = resume([first.value, second.value], chunks);
    return new Response(this.#body(c, rest, { place }), init);
  }

  /**
   * A response of bytes in pieces. An error before the first is thrown.
   *
   * @throws CprgError with reason STREAMS_FULL
   */
  async bytes(
    c: Context<AppEnv>,
    pieces: AsyncGenerator<Uint8Array> | AsyncIterable<Uint8Array>,
    { place: given, onOver, ...init }: StreamedBytesInit,
  ): Promise<Response> {
    const chunks = pieces[Symbol.asyncIterator]();
    const place = given ?? (await this.#placeFor(c, chunks));
    try {
      const first = await chunks.next();
      const body = { place, ...(onOver === undefined ? {} : { onOver }) };
      return new Response(
        this.#body(c, resume(first.done ? [] : [first.value], chunks), body),
        init,
      );
    } catch (error) {
      place.giveBack();
      throw error;
    }
  }

  /** Where there is none, nothing is read any more. */
  async #placeFor(c: Context<AppEnv>, chunks: AsyncIterator<unknown>): Promise<StreamPlace> {
    try {
      return this.place(c);
    } catch (error) {
      await chunks.return?.();
      throw error;
    }
  }

  #body(c: Context<AppEnv>, chunks: Pieces, { place, onOver }: BodyInit) {
    const { onBroken } = this.#options;
    const { revoked } = c.get("principal");
    const encoder = new TextEncoder();
    let cut = (): void => undefined;
    let isOver = false;
    const end = (): boolean => {
      if (isOver) return false;
      isOver = true;
      revoked.removeEventListener("abort", cut);
      place.giveBack();
      onOver?.();
      return true;
    };
    return new ReadableStream<Uint8Array>({
      start(controller) {
        cut = () => {
          if (!end()) return;
          // Bun prints an error that it is given here, beside the log.
          controller.error();
          void chunks.return(undefined).catch(() => undefined);
        };
        if (revoked.aborted) cut();
        else revoked.addEventListener("abort", cut, { once: true });
      },
      async pull(controller) {
        try {
          const { done, value } = await chunks.next();
          // A client that left meanwhile has closed it.
          if (isOver) return;
          if (!done) controller.enqueue(typeof value === "string" ? encoder.encode(value) : value);
          else if (end()) controller.close();
        } catch (error) {
          if (!end()) return;
          onBroken(c, error);
          controller.error();
        }
      },
      async cancel() {
        if (end()) await chunks.return(undefined);
      },
    });
  }
}

async function* gather(pieces: AsyncIterable<string>): AsyncGenerator<string> {
  let gathered = "";
  for await (const piece of pieces) {
    gathered += piece;
    if (gathered.length < CHUNK_CHARS) continue;
    yield gathered;
    gathered = "";
  }
  if (gathered !== "") yield gathered;
}

async function* resume<T>(begun: readonly T[], rest: AsyncIterator<T>): AsyncGenerator<T> {
  try {
    yield* begun;
    for (;;) {
      const next = await rest.next();
      if (next.done) return;
      yield next.value;
    }
  } finally {
    await rest.return?.();
  }
}
