/**
 * One HTTP/2 stream as a request of Connect's, and Connect's answer on it.
 *
 * It stands in for connect-node's adapter for two reasons: that one sends the response headers with
 * the first message only, and a worker waits for them to know what the control plane can; and it
 * reads through the compatibility layer, which on Bun takes in more than its reader consumes.
 */

import { once } from "node:events";
import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { ContextValues } from "@connectrpc/connect";
import type {
  UniversalHandlerFn,
  UniversalServerRequest,
  UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import type { Header } from "./metadata.ts";

/** A request as it came. */
export interface Http2Request {
  readonly stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  readonly contextValues: ContextValues;
}

/** Sends the response headers before there is a message; once, and only if none were sent. */
export function respondEarly(stream: ServerHttp2Stream, headers: Headers): void {
  if (stream.headersSent || stream.destroyed || stream.closed) return;
  stream.respond({ ":status": 200, ...Object.fromEntries(headers) }, { waitForTrailers: true });
}

/** Hands a request to Connect and sends what it answers. Resolves when the stream has ended. */
export async function answer(handler: UniversalHandlerFn, request: Http2Request): Promise<void> {
  const { stream } = request;
  const aborted = new AbortController();
  stream.once("close", () => aborted.abort());
  // Without a listener a reset by the peer would be an uncaught error.
  stream.on("error", () => undefined);
  const response = await handler(universalRequest(request, aborted.signal));
  await send(stream, response);
}

function universalRequest(request: Http2Request, signal: AbortSignal): UniversalServerRequest {
  const { stream, headers, contextValues } = request;
  return {
    httpVersion: "2.0",
    method: headers[":method"] ?? "",
    url: `http://${headers[":authority"] ?? "localhost"}${headers[":path"] ?? ""}`,
    header: new Headers(
      Object.entries(headers).flatMap(([name, value]): Header[] =>
        name.startsWith(":") || value === undefined ? [] : [[name, String(value)]],
      ) as [string, string][],
    ),
    body: keptOpen(stream),
    signal,
    contextValues,
  };
}

/** Its messages; a reader that leaves does not destroy the stream, on which the status is to come. */
function keptOpen(stream: ServerHttp2Stream): AsyncIterable<Uint8Array> {
  return {
    [Symbol.asyncIterator]: () => {
      const iterator = stream[Symbol.asyncIterator]();
      return { next: () => iterator.next() };
    },
  };
}

async function send(stream: ServerHttp2Stream, response: UniversalServerResponse): Promise<void> {
  const trailer = Object.fromEntries(response.trailer ?? new Headers());
  stream.once("wantTrailers", () => {
    stream.sendTrailers(trailer);
    // The peer may not have ended its half, and nobody reads it any more.
    setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
  });
  const body = response.body?.[Symbol.asyncIterator]();
  try {
    if (!stream.headersSent && !stream.destroyed) {
      const headers = Object.fromEntries(response.header ?? new Headers());
      stream.respond({ ":status": response.status, ...headers }, { waitForTrailers: true });
    }
    for (let next = await body?.next(); next && !next.done; next = await body?.next()) {
      if (stream.destroyed || stream.closed) return;
      if (!stream.write(next.value)) await drained(stream);
    }
    Object.assign(trailer, Object.fromEntries(response.trailer ?? new Headers()));
    if (!stream.destroyed) stream.end();
    if (!stream.destroyed) await once(stream, "close").catch(() => undefined);
  } finally {
    await body?.return?.();
  }
}

function drained(stream: ServerHttp2Stream): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off("drain", done);
      stream.off("close", done);
      resolve();
    };
    stream.once("drain", done);
    stream.once("close", done);
  });
}
