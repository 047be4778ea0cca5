/** Answers whose bodies come in pieces: sent as fast as the client reads, held in memory as little. */

/** Pieces are gathered to about this size before they are sent. */
const CHUNK_CHARS = 64 * 1024;

/** Status and headers of an answer, and who hears of one that broke off. */
export interface StreamedInit {
  readonly status?: number;
  readonly headers: Record<string, string>;
  onBroken(error: unknown): void;
  /** The client went away: ends what the next piece waits for. */
  onCancel?(): void;
}

/**
 * A response of text in pieces. A short one is sent whole, with its length; an error before the
 * first chunk is thrown, a later one breaks the connection off, so that a client never takes half
 * for all.
 */
export async function textResponse(
  pieces: AsyncIterable<string>,
  init: StreamedInit,
): Promise<Response> {
  const chunks = gather(pieces)[Symbol.asyncIterator]();
  const first = await chunks.next();
  const second = first.done ? first : await chunks.next();
  if (second.done) return new Response(first.done ? "" : first.value, init);
  return new Response(byteStream(resume([first.value, second.value], chunks), init), init);
}

/** A response of bytes in pieces. An error before the first is thrown. */
export async function bytesResponse(
  pieces: AsyncIterable<Uint8Array>,
  init: StreamedInit,
): Promise<Response> {
  const chunks = pieces[Symbol.asyncIterator]();
  const first = await chunks.next();
  return new Response(byteStream(resume(first.done ? [] : [first.value], chunks), init), init);
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

function byteStream(
  chunks: AsyncGenerator<string | Uint8Array>,
  { onBroken, onCancel }: StreamedInit,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await chunks.next();
        if (done) return controller.close();
        controller.enqueue(typeof value === "string" ? encoder.encode(value) : value);
      } catch (error) {
        onBroken(error);
        // Bun prints an error that it is given here, beside the log.
        controller.error();
      }
    },
    async cancel() {
      onCancel?.();
      await chunks.return(undefined);
    },
  });
}
