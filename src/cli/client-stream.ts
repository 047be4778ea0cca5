/**
 * The live events of a job or an exec over the WebSocket, as lines in order without gap or duplicate. A
 * connection that breaks is taken up again behind the last line; a reader slower than the server
 * makes the client hang up and come back later, because a WebSocket cannot be held back.
 */

import { CprgError } from "../core/errors.ts";
import {
  apiUrl,
  authorization,
  requestJson,
  type ServerAccess,
  tlsOf,
  unreachable,
} from "./client.ts";

/** Characters of events that may wait for a slow reader before the client hangs up. */
export const STREAM_QUEUE_CHARS_MAX = 8 * 1024 * 1024;

/** Connections in a row that may bring nothing new. */
export const STREAM_ATTEMPTS_MAX = 5;

/** Wait before the first of those is repeated; doubles each time. */
const RETRY_MS = 100;

/** An event as far as the client looks into it. */
export interface StreamedEvent {
  readonly seq: number;
  readonly kind: string;
  readonly data: unknown;
  readonly encoding?: "base64";
  readonly at: string;
}

/** What is followed. */
export interface StreamRequest {
  /** The run: `/v1/jobs/ID` or `/v1/execs/ID`. */
  readonly path: string;
  /** First event wanted, from 1. */
  readonly fromSeq: number;
  /** Ends the iteration. */
  readonly signal?: AbortSignal;
}

/**
 * Events from `fromSeq` to `finished`.
 *
 * @throws CprgError as the server says, or when it can no longer be reached
 */
export async function* streamEvents(
  access: ServerAccess,
  request: StreamRequest,
): AsyncGenerator<StreamedEvent> {
  let next = request.fromSeq;
  let attempts = 0;
  while (!request.signal?.aborted) {
    // A refused upgrade tells a WebSocket client nothing: ask first, for the problem behind it.
    await requestJson(access, { path: request.path });
    const before = next;
    for await (const event of oneConnection(access, { ...request, fromSeq: next })) {
      if (event.seq < next) continue;
      next = event.seq + 1;
      yield event;
      if (event.kind === "finished") return;
    }
    attempts = next === before ? attempts + 1 : 0;
    if (attempts >= STREAM_ATTEMPTS_MAX) throw unreachable(access, "the stream keeps breaking");
    if (attempts > 0) await Bun.sleep(RETRY_MS * 2 ** (attempts - 1));
  }
}

/** What one connection brings; closed whoever ends it. */
async function* oneConnection(
  access: ServerAccess,
  request: StreamRequest,
): AsyncGenerator<StreamedEvent> {
  const connection = connect(access, request);
  try {
    yield* connection;
  } finally {
    connection.close();
  }
}

/** `/v1/jobs/ID`. */
export function jobPath(jobId: string): string {
  return `/v1/jobs/${encodeURIComponent(jobId)}`;
}

interface Connection extends AsyncIterable<StreamedEvent> {
  close(): void;
}

/** One WebSocket as an iteration of events that ends when it closes, for whatever reason. */
function connect(access: ServerAccess, request: StreamRequest): Connection {
  const path = `${request.path}/stream?from_seq=${request.fromSeq}`;
  const url = apiUrl(access, path).replace(/^http/, "ws");
  const socket = new WebSocket(url, {
    headers: authorization(access),
    ...tlsOf(access),
  });
  const queue: string[] = [];
  let queuedChars = 0;
  let isOpen = true;
  let wake = (): void => undefined;
  const end = (): void => {
    isOpen = false;
    wake();
  };
  socket.onmessage = ({ data }: MessageEvent) => {
    // Hung up for lack of room: what still arrives is asked for again later.
    if (!isOpen || typeof data !== "string") return;
    queue.push(data);
    queuedChars += data.length;
    if (queuedChars > STREAM_QUEUE_CHARS_MAX) close();
    wake();
  };
  const close = (): void => {
    end();
    socket.close();
  };
  socket.onclose = end;
  socket.onerror = end;
  request.signal?.addEventListener("abort", close, { once: true });
  async function* iterate(): AsyncGenerator<StreamedEvent> {
    while (true) {
      const text = queue.shift();
      if (text !== undefined) {
        queuedChars -= text.length;
        yield* parseFrame(text);
      } else if (isOpen) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else return;
    }
  }
  return { close, [Symbol.asyncIterator]: iterate };
}

/** The events of one frame: one JSON line each. */
export function* parseFrame(text: string): Generator<StreamedEvent> {
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const event: unknown = JSON.parse(line);
    if (!isEvent(event)) throw new CprgError("data_loss", "Cannot read event: no event of cprg");
    yield event;
  }
}

function isEvent(value: unknown): value is StreamedEvent {
  if (typeof value !== "object" || value === null) return false;
  const event = value as Partial<StreamedEvent>;
  return Number.isSafeInteger(event.seq) && typeof event.kind === "string";
}

/** The bytes of an output event. */
export function outputBytes(event: StreamedEvent): Uint8Array {
  if (typeof event.data !== "string") {
    throw new CprgError("data_loss", `Cannot read event ${event.seq}: its data is no text`);
  }
  return Buffer.from(event.data, event.encoding === "base64" ? "base64" : "utf8");
}
