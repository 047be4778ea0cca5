/** The worker's end of the wire: one connection, one stream of frames. */

import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import type { ConnectionOptions } from "node:tls";
import { createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { CprgError } from "../core/errors.ts";
import { WorkerBridge } from "../gen/outrigger/v1/bridge_pb.js";
import { streamError } from "./connect-errors.ts";
import { openSocket, type Target } from "./connect-proxy.ts";
import type { FrameStream, PeerCapabilities } from "./contract.ts";
import { FrameChannel } from "./frame-channel.ts";
import { CLOSE_MS_MAX, HANDSHAKE_MS_MAX, HEADERS_MS_MAX, MESSAGE_BYTES_MAX } from "./limits.ts";
import {
  type ControlMetadata,
  type Header,
  parseControl,
  type Registration,
  registrationHeaders,
} from "./metadata.ts";
import { HTTP2_PING } from "./methods.ts";
import { keepAlive, type PingOptions } from "./ping.ts";

/** How the control plane is known, PEM. */
export interface DialerTls {
  /** Certificates that it must be signed by; the system's if absent. */
  readonly authority?: string;
  /** This worker's own, where the control plane wants one. */
  readonly certificate?: string;
  readonly key?: string;
  /** Name in its certificate, where that is not the host. */
  readonly serverName?: string;
}

export interface DialOptions extends Target {
  readonly token: string;
  readonly registration: Registration;
  /** Without it, HTTP/2 in the clear. */
  readonly tls?: DialerTls;
  /** `HTTPS_PROXY`, where that applies to the host. */
  readonly proxy?: URL;
  readonly ping?: PingOptions;
  /** Gives up while it is dialling; afterwards the stream has its own `close`. */
  readonly signal?: AbortSignal;
}

/** A stream that the control plane has accepted, as far as it says. */
export interface Dialed {
  readonly stream: FrameStream;
  /** What it answered; a plain peer's default until its headers come, if they ever do. */
  readonly control: ControlMetadata;
  readonly peer: PeerCapabilities;
  /**
   * Resolves when its connection is gone. Once the stream is closed that is when the control plane
   * has answered with its status, or after {@link CLOSE_MS_MAX}.
   */
  readonly gone: Promise<void>;
}

/**
 * Dials, registers, and resolves when the control plane has accepted the registration, or has said
 * nothing for {@link HEADERS_MS_MAX}, which is what plain peers do.
 *
 * @throws CprgError `unavailable` when it cannot be reached; what it refused the registration with
 *   otherwise; the signal's reason
 */
export async function dial(options: DialOptions): Promise<Dialed> {
  const headers = registrationHeaders(options.registration, options.token);
  const { session, authority } = await openSession(options);
  try {
    return await register(session, { authority, headers, options });
  } catch (error) {
    session.destroy();
    throw error;
  }
}

async function openSession(
  options: DialOptions,
): Promise<{ session: ClientHttp2Session; authority: string }> {
  const { host, port, proxy, tls } = options;
  const limit = AbortSignal.timeout(HANDSHAKE_MS_MAX);
  const signal = options.signal === undefined ? limit : AbortSignal.any([limit, options.signal]);
  const socket = await openSocket({ host, port }, { proxy, tls: tlsOptions(tls), signal }).catch(
    (error: unknown) => {
      if (options.signal?.aborted || CprgError.is(error)) throw error;
      throw new CprgError("unavailable", `Cannot reach ${host}:${port}: it does not answer`);
    },
  );
  const name = host.includes(":") ? `[${host}]` : host;
  const authority = `${tls === undefined ? "http" : "https"}://${name}:${port}`;
  const session = connectHttp2(authority, { createConnection: () => socket });
  // What happens to the connection is seen on the stream.
  session.on("error", () => undefined);
  return { session, authority: new URL(authority).origin };
}

function tlsOptions(tls: DialerTls | undefined): ConnectionOptions | undefined {
  if (tls === undefined) return undefined;
  const { authority: ca, certificate: cert, key, serverName: servername } = tls;
  const given = Object.entries({ ca, cert, key, servername }).filter(([, value]) => value);
  return { minVersion: "TLSv1.2", ...Object.fromEntries(given) };
}

interface Opened {
  readonly authority: string;
  readonly headers: readonly Header[];
  readonly options: DialOptions;
}

async function register(session: ClientHttp2Session, opened: Opened): Promise<Dialed> {
  const { authority, headers, options } = opened;
  const { signal } = options;
  const aborted = new AbortController();
  let control = parseControl([]);
  // `Promise.withResolvers` needs a newer Node than the one that is supported.
  let tell: () => void = () => undefined;
  let giveUp: (reason: unknown) => void = () => undefined;
  const told = new Promise<void>((resolve, reject) => {
    tell = resolve;
    giveUp = reject;
  });
  // Refused while nobody waits any more: the stream's reader hears of it.
  told.catch(() => undefined);
  const onHeader = (fields: Headers): void => {
    control = parseControl([...fields]);
    if (control.methods.includes(HTTP2_PING)) keepAlive(session, options.ping);
    // Without them it may be a plain peer, or a refusal whose status is yet to come.
    if (fields.has("x-control-methods")) tell();
  };
  const received = primed(
    createClient(WorkerBridge, transportOver(session, authority)).connect(
      { [Symbol.asyncIterator]: () => channel.outgoing() },
      { headers: headers as [string, string][], signal: aborted.signal, onHeader },
    ),
  );
  const channel = new FrameChannel(received.items, (error) => {
    if (error !== undefined) aborted.abort();
    closeSoon(session);
  });
  const first = received.first.then(
    () => undefined,
    (thrown: unknown) => {
      throw streamError(thrown);
    },
  );
  const limit = setTimeout(tell, HEADERS_MS_MAX);
  const onAbort = (): void => giveUp(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    await Promise.race([told, first]);
  } catch (error) {
    channel.close(CprgError.from(error));
    throw error;
  } finally {
    clearTimeout(limit);
    signal?.removeEventListener("abort", onAbort);
  }
  return {
    stream: channel,
    gone: new Promise((resolve) => {
      if (session.destroyed) resolve();
      else session.once("close", () => resolve());
    }),
    peer: { has: (capability) => control.methods.includes(capability) },
    get control() {
      return control;
    },
  };
}

function transportOver(session: ClientHttp2Session, authority: string): Transport {
  return createGrpcTransport({
    baseUrl: authority,
    acceptCompression: [],
    readMaxBytes: MESSAGE_BYTES_MAX,
    writeMaxBytes: MESSAGE_BYTES_MAX,
    // One connection for one stream: connect-node's own would open another behind our back.
    sessionManager: {
      authority,
      request: async (method, path, headers) =>
        session.request({ ...headers, ":method": method, ":path": path }),
      notifyResponseByteRead: () => undefined,
    },
  });
}

/** Connect sends a request when its answer is read, so the first read begins at once. */
function primed<T>(source: AsyncIterable<T>): {
  first: Promise<IteratorResult<T>>;
  items: AsyncIterable<T>;
} {
  const iterator = source[Symbol.asyncIterator]();
  const first = iterator.next();
  let isFirst = true;
  const next = (): Promise<IteratorResult<T>> => {
    const result = isFirst ? first : iterator.next();
    isFirst = false;
    return result;
  };
  return { first, items: { [Symbol.asyncIterator]: () => ({ next }) } };
}

function closeSoon(session: ClientHttp2Session): void {
  const timer = setTimeout(() => session.destroy(), CLOSE_MS_MAX);
  session.once("close", () => clearTimeout(timer));
  session.close();
}
